//! The schema `whimbrel` of the database, in numbered steps.

/// The layout that this version writes.
pub(crate) const LAYOUT: i32 = MIGRATIONS.len() as i32;

/// Changes that the log keeps: a home that was away for more takes a full copy.
pub(crate) const CHANGES_KEPT: i64 = 10_000;

/// The steps in order: the first makes layout 1 of an empty database. A step is never edited once a release has it.
///
/// A change is numbered by a row that its transaction keeps locked until it is committed, so the numbers have no gaps and are in the order of the
/// commits. Triggers do it, so that a change by any other program is followed as well. A subscription is in its subscriber's row, and not in a table
/// of its own as in the file: then a change locks no row of another subscriber.
pub(crate) const MIGRATIONS: [&str; 1] = ["
    CREATE SCHEMA whimbrel;
    CREATE TABLE whimbrel.state (
        single boolean PRIMARY KEY DEFAULT true CHECK (single),
        layout integer NOT NULL,
        database uuid NOT NULL DEFAULT gen_random_uuid(),
        generation bigint NOT NULL DEFAULT 0,
        key_check bytea NOT NULL
    );
    CREATE TABLE whimbrel.generation (
        generation bigint PRIMARY KEY,
        mark uuid NOT NULL DEFAULT gen_random_uuid(),
        at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE TABLE whimbrel.change (
        generation bigint NOT NULL,
        supi text COLLATE \"C\" NOT NULL,
        PRIMARY KEY (generation, supi)
    );
    CREATE TABLE whimbrel.subscriber (
        supi text COLLATE \"C\" PRIMARY KEY,
        msisdn text UNIQUE DEFERRABLE INITIALLY DEFERRED,
        status text NOT NULL,
        algorithm text NOT NULL,
        auth text NOT NULL,
        amf bytea NOT NULL,
        sqn_offset bigint NOT NULL,
        keys bytea NOT NULL,
        subscription text NOT NULL
    );
    CREATE FUNCTION whimbrel.log_change() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        number bigint;
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM changed) THEN
            RETURN NULL;
        END IF;
        UPDATE whimbrel.state SET generation = generation + 1 RETURNING generation INTO number;
        INSERT INTO whimbrel.generation (generation) VALUES (number);
        INSERT INTO whimbrel.change (generation, supi) SELECT number, supi FROM changed;
        DELETE FROM whimbrel.generation WHERE generation <= number - 10000;
        DELETE FROM whimbrel.change WHERE generation <= number - 10000;
        PERFORM pg_notify('whimbrel', '');
        RETURN NULL;
    END $$;
    CREATE FUNCTION whimbrel.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'the homes do not follow TRUNCATE, or a change of a SUPI: use DELETE and INSERT';
    END $$;
    CREATE TRIGGER added AFTER INSERT ON whimbrel.subscriber
        REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION whimbrel.log_change();
    CREATE TRIGGER edited AFTER UPDATE ON whimbrel.subscriber
        REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION whimbrel.log_change();
    CREATE TRIGGER removed AFTER DELETE ON whimbrel.subscriber
        REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION whimbrel.log_change();
    CREATE TRIGGER renamed BEFORE UPDATE OF supi ON whimbrel.subscriber
        FOR EACH ROW WHEN (OLD.supi <> NEW.supi) EXECUTE FUNCTION whimbrel.refuse_change();
    CREATE TRIGGER emptied BEFORE TRUNCATE ON whimbrel.subscriber
        FOR EACH STATEMENT EXECUTE FUNCTION whimbrel.refuse_change();
"];
