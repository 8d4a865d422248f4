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
pub(crate) const MIGRATIONS: [&str; 2] = ["
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
", HOMES];

/// Layout 2: the home at which each subscriber is registered (TS 29.503 Nudm_UECM). An AMF is named by its PLMN and AMF identifier (TS 23.003 §2.10.1),
/// times are microseconds since 1970 by the database's clock.
///
/// Of two registrations the later one is in force. A home writes how long ago a UE registered, not when: so homes' clocks need not agree. A row
/// from the future, such as after a step of the database's clock, is in nobody's way. A home that loses a subscriber to another one finds
/// that in `deregistration`, written by the same transaction.
const HOMES: &str = "
    CREATE TABLE whimbrel.registration (
        supi text COLLATE \"C\" PRIMARY KEY,
        amf text COLLATE \"C\" NOT NULL CHECK (amf ~ '^[0-9]{5,6}-[0-9a-f]{6}$'),
        at bigint NOT NULL
    );
    CREATE INDEX registration_of_amf ON whimbrel.registration (amf, supi);
    CREATE TABLE whimbrel.deregistration (
        amf text COLLATE \"C\" NOT NULL,
        supi text COLLATE \"C\" NOT NULL,
        at bigint NOT NULL,
        PRIMARY KEY (amf, supi)
    );
    CREATE FUNCTION whimbrel.inform_former_amf() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO whimbrel.deregistration (amf, supi, at)
            SELECT o.amf, o.supi, n.at FROM former o JOIN changed n ON n.supi = o.supi AND n.amf <> o.amf ORDER BY o.amf, o.supi
            ON CONFLICT (amf, supi) DO UPDATE SET at = excluded.at;
        PERFORM pg_notify('whimbrel_' || d.amf, '') FROM
            (SELECT DISTINCT o.amf FROM former o JOIN changed n ON n.supi = o.supi AND n.amf <> o.amf) d;
        RETURN NULL;
    END $$;
    CREATE TRIGGER moved AFTER UPDATE ON whimbrel.registration
        REFERENCING OLD TABLE AS former NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION whimbrel.inform_former_amf();
    CREATE FUNCTION whimbrel.now_us() RETURNS bigint LANGUAGE sql AS $$
        SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    $$;
    CREATE FUNCTION whimbrel.register(own text, supis text[], ages bigint[], gone text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
    DECLARE
        now_us bigint := whimbrel.now_us();
    BEGIN
        DELETE FROM whimbrel.registration r WHERE r.supi = ANY (gone) AND r.amf = own;
        INSERT INTO whimbrel.registration AS r (supi, amf, at)
            SELECT c.supi, own, now_us - c.age FROM unnest(supis, ages) AS c (supi, age) ORDER BY c.supi
            ON CONFLICT (supi) DO UPDATE SET amf = own, at = CASE WHEN r.amf = own AND r.at <= now_us THEN greatest(r.at, excluded.at) ELSE excluded.at END
            WHERE r.amf = own OR r.at < excluded.at OR r.at > now_us;
        RETURN QUERY SELECT r.supi::text FROM whimbrel.registration r WHERE r.supi = ANY (supis) AND r.amf <> own;
    END $$;
";
