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
pub(crate) const MIGRATIONS: [&str; 3] = [
    "
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
",
    HOMES,
    DOCUMENTS,
];

/// Layout 2: the home at which each subscriber is registered (TS 29.503 Nudm_UECM). An AMF is named by its PLMN and AMF identifier (TS 23.003 §2.10.1),
/// times are microseconds since 1970 by the database's clock.
///
/// Of two registrations the later one is in force. A home writes how long ago a UE registered, not when: so homes' clocks need not agree. A row
/// from the future, such as after a step of the database's clock, is replaced by any other one. A home that loses a subscriber to another one finds
/// that in `deregistration`, written by the same transaction.
///
/// The AMFs lease slots of SQNs, and shares of the limits of slices. A server that has started, or was promoted, may lack leases that were
/// committed: nothing new is leased for the ten seconds in which each home that runs writes what it has again.
const HOMES: &str = "
    CREATE TABLE whimbrel.home (
        amf text COLLATE \"C\" NOT NULL CHECK (amf ~ '^[0-9]{5,6}-[0-9a-f]{6}$'),
        cta integer NOT NULL,
        file text NOT NULL,
        name text NOT NULL,
        seen timestamptz NOT NULL,
        writes bigint NOT NULL,
        PRIMARY KEY (amf, cta)
    );
    CREATE TABLE whimbrel.sqn_slot (
        amf text COLLATE \"C\" PRIMARY KEY,
        slot smallint NOT NULL CHECK (slot BETWEEN 0 AND 31),
        is_configured boolean NOT NULL
    );
    CREATE FUNCTION whimbrel.runs(seen timestamptz) RETURNS boolean LANGUAGE sql AS $$
        SELECT seen BETWEEN clock_timestamp() - interval '30 s' AND clock_timestamp() + interval '30 s'
    $$;
    CREATE FUNCTION whimbrel.rival(own text, own_cta integer, own_file text) RETURNS TABLE (name text, seconds_ago bigint) LANGUAGE sql AS $$
        SELECT h.name, extract(epoch FROM clock_timestamp() - h.seen)::bigint FROM whimbrel.home h
            WHERE h.amf = own AND h.cta = own_cta AND h.file <> own_file AND whimbrel.runs(h.seen)
    $$;
    CREATE TABLE whimbrel.epoch (
        epoch text PRIMARY KEY,
        since timestamptz NOT NULL
    );
    CREATE FUNCTION whimbrel.server_epoch() RETURNS text LANGUAGE sql AS $$
        SELECT concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()), (SELECT system_identifier FROM pg_control_system()),
            (SELECT timeline_id FROM pg_control_checkpoint()))
    $$;
    INSERT INTO whimbrel.epoch VALUES (whimbrel.server_epoch(), '-infinity');
    CREATE FUNCTION whimbrel.is_settled() RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE
        now_epoch text := whimbrel.server_epoch();
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM whimbrel.epoch e WHERE e.epoch = now_epoch) THEN
            DELETE FROM whimbrel.epoch;
            INSERT INTO whimbrel.epoch VALUES (now_epoch, clock_timestamp()) ON CONFLICT DO NOTHING;
        END IF;
        RETURN NOT EXISTS (SELECT 1 FROM whimbrel.epoch e WHERE e.since BETWEEN clock_timestamp() - interval '10 s' AND clock_timestamp() + interval '10 s');
    END $$;
    CREATE FUNCTION whimbrel.enter(own text, own_cta integer, own_file text, own_name text, known bigint, configured smallint, kept smallint,
        OUT rival_name text, OUT rival_seconds bigint, OUT is_lost boolean, OUT writes_now bigint, OUT own_slot smallint, OUT shared_with text)
        LANGUAGE plpgsql AS $$
    DECLARE
        former whimbrel.home;
        lease whimbrel.sqn_slot;
        free smallint;
    BEGIN
        SELECT * INTO former FROM whimbrel.home h WHERE h.amf = own AND h.cta = own_cta AND h.file = own_file;
        is_lost := known > 0 AND (former.amf IS NULL OR former.writes < known);
        INSERT INTO whimbrel.home AS h (amf, cta, file, name, seen, writes)
            VALUES (own, own_cta, own_file, own_name, clock_timestamp(), known + 1)
            ON CONFLICT (amf, cta) DO UPDATE SET file = own_file, name = own_name, seen = clock_timestamp(), writes =
                greatest(known, CASE WHEN h.file = own_file AND h.writes < 4000000000000000000 THEN h.writes ELSE 0 END) + 1
            WHERE h.file = own_file OR NOT whimbrel.runs(h.seen)
            RETURNING h.writes INTO writes_now;
        IF writes_now IS NULL THEN
            SELECT r.name, r.seconds_ago INTO rival_name, rival_seconds FROM whimbrel.rival(own, own_cta, own_file) r;
            RETURN;
        END IF;
        SELECT * INTO lease FROM whimbrel.sqn_slot s WHERE s.amf = own;
        IF lease.amf IS NULL AND coalesce(configured, kept) IS NULL AND NOT whimbrel.is_settled() THEN
            RETURN;
        END IF;
        IF lease.amf IS NULL OR lease.is_configured <> (configured IS NOT NULL) OR lease.slot <> configured
            OR (configured IS NULL AND EXISTS (SELECT 1 FROM whimbrel.sqn_slot s WHERE s.slot = lease.slot AND s.amf <> own AND (s.is_configured OR s.amf < own)))
        THEN
            LOCK TABLE whimbrel.sqn_slot IN SHARE ROW EXCLUSIVE MODE;
            kept := coalesce(lease.slot, kept);
            SELECT n INTO free FROM generate_series(0, 31) n WHERE n NOT IN (SELECT s.slot FROM whimbrel.sqn_slot s WHERE s.amf <> own)
                ORDER BY (n = kept) IS NOT TRUE, n LIMIT 1;
            own_slot := coalesce(configured, free, kept, (SELECT n FROM generate_series(0, 31) n
                ORDER BY (SELECT count(*) FROM whimbrel.sqn_slot s WHERE s.slot = n), n LIMIT 1));
            INSERT INTO whimbrel.sqn_slot (amf, slot, is_configured) VALUES (own, own_slot, configured IS NOT NULL)
                ON CONFLICT (amf) DO UPDATE SET slot = excluded.slot, is_configured = excluded.is_configured;
        ELSE
            own_slot := lease.slot;
        END IF;
        SELECT s.amf INTO shared_with FROM whimbrel.sqn_slot s WHERE s.slot = own_slot AND s.amf <> own ORDER BY s.amf LIMIT 1;
    END $$;
    CREATE TABLE whimbrel.slice_share (
        slice text COLLATE \"C\" NOT NULL,
        amf text COLLATE \"C\" NOT NULL CHECK (amf ~ '^[0-9]{5,6}-[0-9a-f]{6}$'),
        share integer NOT NULL CHECK (share >= 0),
        used integer NOT NULL CHECK (used >= 0),
        PRIMARY KEY (slice, amf)
    );
    CREATE FUNCTION whimbrel.lease_share(own text, of_slice text, most bigint, had integer, in_use integer, OUT granted integer, OUT target integer)
        LANGUAGE plpgsql AS $$
    DECLARE
        leased bigint;
        reserved bigint;
        homes bigint;
        rank bigint;
        rest bigint;
        former integer;
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtext('whimbrel slice'), hashtext(of_slice));
        SELECT coalesce(sum(o.share), 0), coalesce(sum(CASE WHEN o.is_running THEN o.used ELSE o.share END), 0), 1 + count(*) FILTER (WHERE o.is_running),
            count(*) FILTER (WHERE o.is_running AND (o.used > in_use OR (o.used = in_use AND o.amf < own)))
            INTO leased, reserved, homes, rank FROM (SELECT s.amf, s.share, s.used,
                EXISTS (SELECT 1 FROM whimbrel.home h WHERE h.amf = s.amf AND whimbrel.runs(h.seen)) AS is_running
                FROM whimbrel.slice_share s WHERE s.slice = of_slice AND s.amf <> own) o;
        rest := greatest(most - reserved - in_use, 0);
        target := least(in_use + rest / homes + CASE WHEN rank < rest % homes THEN 1 ELSE 0 END, 2147483647);
        SELECT s.share INTO former FROM whimbrel.slice_share s WHERE s.slice = of_slice AND s.amf = own;
        granted := had;
        IF target > had AND whimbrel.is_settled() THEN
            granted := least(target, had + greatest(most - leased - had, 0));
        END IF;
        INSERT INTO whimbrel.slice_share (slice, amf, share, used) VALUES (of_slice, own, granted, in_use)
            ON CONFLICT (slice, amf) DO UPDATE SET share = excluded.share, used = excluded.used;
        IF whimbrel.is_settled() AND (granted < target OR granted < former) THEN
            PERFORM pg_notify('whimbrel', '');
        END IF;
    END $$;
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

/// Layout 3: documents beside the subscribers, which are users of the console and API tokens, sealed; the audit logs and the charging records of all
/// homes, as the homes write them behind.
///
/// A change of a document is in the same log as those of subscribers, under the document's name, which has a colon. A line of an audit log has the number
/// of its arrival and is there once for each home: `home` is the random name of the home's file.
const DOCUMENTS: &str = "
    CREATE TABLE whimbrel.document (
        name text COLLATE \"C\" PRIMARY KEY CHECK (name ~ '^[a-z]+:[0-9A-Za-z._@-]{1,64}$'),
        content bytea NOT NULL
    );
    CREATE FUNCTION whimbrel.log_document() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        number bigint;
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM changed) THEN
            RETURN NULL;
        END IF;
        UPDATE whimbrel.state SET generation = generation + 1 RETURNING generation INTO number;
        INSERT INTO whimbrel.generation (generation) VALUES (number);
        INSERT INTO whimbrel.change (generation, supi) SELECT number, name FROM changed;
        DELETE FROM whimbrel.generation WHERE generation <= number - 10000;
        DELETE FROM whimbrel.change WHERE generation <= number - 10000;
        PERFORM pg_notify('whimbrel', '');
        RETURN NULL;
    END $$;
    CREATE TRIGGER added AFTER INSERT ON whimbrel.document
        REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION whimbrel.log_document();
    CREATE TRIGGER edited AFTER UPDATE ON whimbrel.document
        REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION whimbrel.log_document();
    CREATE TRIGGER removed AFTER DELETE ON whimbrel.document
        REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION whimbrel.log_document();
    CREATE TRIGGER renamed BEFORE UPDATE OF name ON whimbrel.document
        FOR EACH ROW WHEN (OLD.name <> NEW.name) EXECUTE FUNCTION whimbrel.refuse_change();
    CREATE TRIGGER emptied BEFORE TRUNCATE ON whimbrel.document
        FOR EACH STATEMENT EXECUTE FUNCTION whimbrel.refuse_change();
    CREATE TABLE whimbrel.audit (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        home text COLLATE \"C\" NOT NULL,
        name text NOT NULL,
        at timestamptz NOT NULL,
        line text NOT NULL,
        hash bytea NOT NULL,
        UNIQUE (home, hash)
    );
    CREATE INDEX audit_of_home ON whimbrel.audit (home, number);
    CREATE INDEX audit_at ON whimbrel.audit (at);
    CREATE TABLE whimbrel.usage (
        arrival bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
        home text COLLATE \"C\" NOT NULL,
        name text NOT NULL,
        number bigint NOT NULL,
        session text COLLATE \"C\" NOT NULL,
        supi text COLLATE \"C\" NOT NULL,
        at timestamptz NOT NULL,
        record text NOT NULL,
        PRIMARY KEY (home, session)
    );
    CREATE INDEX usage_of_home ON whimbrel.usage (home, arrival);
    CREATE INDEX usage_of_subscriber ON whimbrel.usage (supi, arrival);
    CREATE INDEX usage_at ON whimbrel.usage (at);
";
