-- What recipients do not want, and addresses that a provider said are no good. Both are
-- looked at when a message is sent.

-- '*' stands for every category, and for every medium. channel_id carries no foreign
-- key: channels.relation may name another table.
CREATE TABLE belfry.opt_outs (
    channel_id   bigint      NOT NULL,
    category     text        NOT NULL DEFAULT '*',
    medium       text        NOT NULL DEFAULT '*',
    reason       text        NOT NULL DEFAULT '',
    opted_out_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT opt_outs_pkey PRIMARY KEY (channel_id, category, medium)
);

-- An address that a provider called invalid is not used again for that medium. A new
-- address of the channel counts from the moment it is there. The address itself is not
-- kept, only its SHA-256.
CREATE TABLE belfry.invalid_addresses (
    channel_id  bigint      NOT NULL,
    medium      text        NOT NULL,
    sha256      bytea       NOT NULL,
    sender      text        NOT NULL DEFAULT '',
    error       text        NOT NULL DEFAULT '',
    job_id      bigint,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT invalid_addresses_pkey PRIMARY KEY (channel_id, medium, sha256),
    CONSTRAINT invalid_addresses_sha256_check CHECK (length(sha256) = 32)
);

-- Nobody is to opt out of a category or a medium that a slip of the pen made up.
CREATE FUNCTION belfry.opt_outs_validate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.channel_id IS NULL THEN
        PERFORM belfry.reject('opt_outs', 'channel_id', 'is required; allowed values: the id of a channel');
    END IF;
    IF NEW.category IS NULL OR NEW.category <> '*' AND NOT EXISTS (SELECT FROM belfry.categories c WHERE c.name = NEW.category) THEN
        PERFORM belfry.reject('opt_outs', 'category', format('%L is not a category; allowed values: * (every category)%s', left(coalesce(NEW.category, 'null'), 60),
            (SELECT string_agg(', ' || c.name, '' ORDER BY c.name) FROM belfry.categories c)));
    END IF;
    IF NEW.medium IS NULL OR NEW.medium <> '*' AND NOT EXISTS (SELECT FROM belfry.media m WHERE m.name = NEW.medium) THEN
        PERFORM belfry.reject('opt_outs', 'medium', format('%L is not a medium; allowed values: * (every medium)%s', left(coalesce(NEW.medium, 'null'), 60),
            (SELECT string_agg(', ' || m.name, '' ORDER BY m.name) FROM belfry.media m)));
    END IF;
    IF NEW.reason IS NULL OR length(NEW.reason) > 1000 THEN
        PERFORM belfry.reject('opt_outs', 'reason', CASE WHEN NEW.reason IS NULL THEN 'is null' ELSE format('has %s characters', length(NEW.reason)) END || '; allowed values: texts of 0 to 1000 characters');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER opt_outs_validate BEFORE INSERT OR UPDATE ON belfry.opt_outs
    FOR EACH ROW EXECUTE FUNCTION belfry.opt_outs_validate();
REVOKE EXECUTE ON FUNCTION belfry.opt_outs_validate() FROM PUBLIC;

-- Records that a channel wants no messages of a category by a medium, and returns the
-- row. The first one stays when it is repeated.
CREATE FUNCTION belfry.opt_out(channel_id bigint, category text DEFAULT '*', medium text DEFAULT '*', reason text DEFAULT '') RETURNS SETOF belfry.opt_outs
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO belfry.opt_outs (channel_id, category, medium, reason) VALUES ($1, $2, $3, coalesce($4, ''))
        ON CONFLICT ON CONSTRAINT opt_outs_pkey DO NOTHING;
    RETURN QUERY SELECT * FROM belfry.opt_outs o WHERE o.channel_id = $1 AND o.category = $2 AND o.medium = $3;
END $$;

-- Takes exactly that opt-out back, and returns the row that was there; none: no row.
CREATE FUNCTION belfry.opt_in(channel_id bigint, category text DEFAULT '*', medium text DEFAULT '*') RETURNS SETOF belfry.opt_outs
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY DELETE FROM belfry.opt_outs o WHERE o.channel_id = $1 AND o.category = $2 AND o.medium = $3 RETURNING o.*;
END $$;
