-- The tokens of the HTTP API, and what joins tables of several packages. What else operations
-- read and write is in the packages that own the tables.
-- name: TokenCreate :one
-- Makes a token, whose secret has @sha256. A name that is taken violates tokens_name_key.
-- belfry.act says who, for the event.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
INSERT INTO belfry.tokens (name, role, sha256, created_by, expires_at)
SELECT @name, @role, @sha256, belfry.actor(), @expires_at FROM act
RETURNING name, role, created_at, created_by, expires_at, revoked_at, last_used_at;

-- name: TokenList :many
-- Every token, by name (tokens_name_key).
SELECT name, role, created_at, created_by, expires_at, revoked_at, last_used_at FROM belfry.tokens ORDER BY name;

-- name: TokenRevoke :one
-- Ends a token; one that is revoked already stays as it is. No row: there is none of that
-- name.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
UPDATE belfry.tokens t SET revoked_at = coalesce(t.revoked_at, clock_timestamp()) FROM act
 WHERE t.name = @name
RETURNING t.name, t.role, t.created_at, t.created_by, t.expires_at, t.revoked_at, t.last_used_at;

-- name: TokenFind :one
-- The token of a secret, by its hash (tokens_sha256_key), if it is good now. unmarked: its
-- last_used_at is a minute old.
SELECT id, name, role, coalesce(last_used_at < now() - interval '1 minute', true) AS unmarked
  FROM belfry.tokens
 WHERE sha256 = @sha256 AND revoked_at IS NULL AND expires_at > now();

-- name: TokenUse :exec
-- Marks that a token is used. Zero rows: another request does so.
UPDATE belfry.tokens SET last_used_at = now()
 WHERE id = (SELECT t.id FROM belfry.tokens t
              WHERE t.id = @id AND coalesce(t.last_used_at < now() - interval '1 minute', true)
                FOR NO KEY UPDATE SKIP LOCKED);

-- name: RequestForget :exec
-- Deletes the request of @who and @key if it is over 24 hours old, and some others that are
-- (requests_pkey, requests_at_idx). Zero rows: there is none.
DELETE FROM belfry.requests
 WHERE (who, key) IN (SELECT who, key FROM (SELECT who, key FROM belfry.requests
                        WHERE at < now() - interval '24 hours' ORDER BY at LIMIT 100 FOR UPDATE SKIP LOCKED) old
                       UNION ALL SELECT @who, @key)
   AND at < now() - interval '24 hours';

-- The people who sign in to the HTTP API, and their sessions. belfry.act says who, for the
-- events.
-- name: UserCreate :one
-- Makes a user. A name that is taken violates users_pkey.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
INSERT INTO belfry.users (name, role, password, created_by)
SELECT @name, @role, @password, belfry.actor() FROM act
RETURNING name, role, created_at, created_by, password_at, disabled_at, signed_in_at;

-- name: UserList :many
-- Every user, by name (users_pkey).
SELECT name, role, created_at, created_by, password_at, disabled_at, signed_in_at FROM belfry.users ORDER BY name;

-- name: UserChange :one
-- Changes what is not null of a user; @disabled as it is already changes nothing. No row: there
-- is none of that name.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
UPDATE belfry.users u
   SET role = coalesce(@role::text, u.role),
       password = coalesce(@password::text, u.password),
       password_at = CASE WHEN @password::text IS NULL THEN u.password_at ELSE clock_timestamp() END,
       disabled_at = CASE WHEN @disabled::boolean IS NULL THEN u.disabled_at WHEN @disabled THEN coalesce(u.disabled_at, clock_timestamp()) END
  FROM act
 WHERE u.name = @name
RETURNING u.name, u.role, u.created_at, u.created_by, u.password_at, u.disabled_at, u.signed_in_at;

-- name: UserRemove :one
-- Removes a user, and with the row the sessions. No row: there is none of that name.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
DELETE FROM belfry.users u USING act WHERE u.name = @name
RETURNING u.name, u.role, u.created_at, u.created_by, u.password_at, u.disabled_at, u.signed_in_at;

-- name: UserPassword :one
-- The hash of a user who may sign in (users_pkey). No row: nobody may by that name, or a
-- provider signs them in.
SELECT password FROM belfry.users WHERE name = @name AND password IS NOT NULL AND disabled_at IS NULL;

-- name: UserLink :one
-- Makes a link that signs a user in, once, within ten minutes. No row: nobody may by that name.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason)),
link AS (
    INSERT INTO belfry.sessions (kind, sha256, name, role, via, expires_at)
    SELECT 'link', @sha256, u.name, u.role, 'link', now() + interval '10 minutes'
      FROM belfry.users u, act WHERE u.name = @name AND u.disabled_at IS NULL FOR SHARE OF u
    RETURNING name, expires_at
), said AS (
    INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
    SELECT 'user', name, 'link', belfry.actor(), belfry.reason(), jsonb_build_object('expires_at', expires_at) FROM link
)
SELECT name, expires_at FROM link;

-- name: UserSignedIn :exec
-- Records a sign-in, with the hash of the password at today's cost, if that is another.
WITH who AS (
    UPDATE belfry.users SET signed_in_at = now(), password = coalesce(@password::text, password) WHERE name = @name
)
INSERT INTO belfry.events (subject, name, kind, actor, detail)
VALUES ('user', @name, 'signed in', @name, jsonb_build_object('session', @id::bigint, 'via', @via::text, 'address', @address::text));

-- name: UserLockedOut :exec
-- Records that too many passwords were wrong. One row, whether the name is a user's or not:
-- how long it takes tells nothing. What is nobody's name is not kept.
INSERT INTO belfry.events (subject, name, kind, actor, detail)
SELECT 'user', coalesce((SELECT u.name FROM belfry.users u WHERE u.name = @name), ''), 'locked out', 'belfry', jsonb_build_object('address', @address::text);

-- name: UserKnownFrom :one
-- Whether a name signed in from @address in the last 30 days (events_subject_idx). Always one row.
SELECT EXISTS (SELECT FROM belfry.events
                WHERE subject = 'user' AND name = @name AND kind = 'signed in' AND at > now() - interval '30 days' AND detail ->> 'address' = @address::text);

-- name: SessionOpen :one
-- Opens a session for a user whose hash is still @password. No row: it is another by now, or
-- the user may not sign in.
INSERT INTO belfry.sessions (kind, sha256, name, role, via, address, expires_at)
SELECT 'session', @sha256, u.name, u.role, 'password', @address, now() + @lifetime::interval
  FROM belfry.users u WHERE u.name = @name AND u.password = @password AND u.disabled_at IS NULL FOR NO KEY UPDATE
RETURNING id, name, role, expires_at;

-- name: SessionExchange :one
-- Opens a session for the user of a link, by its hash, and ends the link. No row: it is used,
-- expired or unknown.
WITH used AS (
    DELETE FROM belfry.sessions WHERE kind = 'link' AND sha256 = @link AND expires_at > now() RETURNING name
), who AS (
    SELECT u.name, u.role FROM belfry.users u JOIN used USING (name) WHERE u.disabled_at IS NULL FOR NO KEY UPDATE OF u
)
INSERT INTO belfry.sessions (kind, sha256, name, role, via, address, expires_at)
SELECT 'session', @sha256, who.name, who.role, 'link', @address, now() + @lifetime::interval FROM who
RETURNING id, name, role, expires_at;

-- name: SignInOnce :exec
-- Uses the state of a sign-in up, for the 24 hours that requests are kept: who has answered a
-- state is the provider's who, and no other's. Zero rows: it was used before (requests_pkey).
INSERT INTO belfry.requests (who, key, fingerprint, ends_at, status)
VALUES ('oidc:', @state, sha256(convert_to(@state, 'UTF8')), clock_timestamp(), 200)
ON CONFLICT ON CONSTRAINT requests_pkey DO NOTHING;

-- name: UserMeet :exec
-- Makes the user of an identity. Zero rows: there is one (users_identity_key), or somebody else
-- has the name (users_pkey).
WITH act AS MATERIALIZED (SELECT belfry.act(@name, @reason))
INSERT INTO belfry.users (name, role, identity, password_at, created_by)
SELECT @name, @role, @identity, NULL, belfry.actor() FROM act
ON CONFLICT DO NOTHING;

-- name: UserRole :exec
-- Gives the user of an identity (users_identity_key) the role of today. With another role the
-- sessions end. Zero rows: it is the role already, or there is no such user.
WITH act AS MATERIALIZED (SELECT belfry.act(@name, @reason))
UPDATE belfry.users u SET role = @role FROM act WHERE u.identity = @identity AND u.role <> @role AND u.disabled_at IS NULL;

-- name: SessionAdmit :one
-- Opens a session for the user of an identity (users_identity_key). No row: there is none, or
-- the user may not sign in.
INSERT INTO belfry.sessions (kind, sha256, name, role, via, address, expires_at)
SELECT 'session', @sha256, u.name, u.role, 'oidc', @address, now() + @lifetime::interval
  FROM belfry.users u WHERE u.identity = @identity AND u.disabled_at IS NULL FOR NO KEY UPDATE
RETURNING id, name, role, expires_at;

-- name: UserOfIdentity :one
-- The name of the user of an identity (users_identity_key). No row: there is none.
SELECT name FROM belfry.users WHERE identity = @identity;

-- name: SessionDismiss :exec
-- Ends the sessions of the user of an identity (users_identity_key, sessions_name_idx). Zero
-- rows: there is none.
WITH gone AS (
    DELETE FROM belfry.sessions s USING belfry.users u WHERE u.identity = @identity AND s.name = u.name RETURNING s.id, s.name
)
INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
SELECT 'user', name, 'session revoked', name, @reason, jsonb_build_object('session', id) FROM gone;

-- name: SessionPrune :exec
-- Deletes some of what has expired (sessions_expires_at_idx), and all but the newest of a user's
-- sessions (sessions_name_idx).
WITH expired AS (
    SELECT id FROM belfry.sessions WHERE expires_at < now() ORDER BY expires_at LIMIT 100 FOR UPDATE SKIP LOCKED
), surplus AS (
    SELECT id FROM belfry.sessions WHERE name = @name ORDER BY id DESC OFFSET 20
)
DELETE FROM belfry.sessions WHERE id IN (SELECT id FROM expired UNION ALL SELECT id FROM surplus);

-- name: SessionFind :one
-- The session of a cookie, by its hash (sessions_sha256_key), if it is good now. unmarked: its
-- used_at is a minute old.
SELECT id, name, role, used_at < now() - interval '1 minute' AS unmarked
  FROM belfry.sessions
 WHERE kind = 'session' AND sha256 = @sha256 AND expires_at > now() AND used_at > now() - @idle::interval;

-- name: SessionsLook :many
-- Those of the sessions of many cookies that are good now, as SessionFind.
SELECT sha256, name, role FROM belfry.sessions
 WHERE kind = 'session' AND sha256 = ANY (@sha256::bytea[]) AND expires_at > now() AND used_at > now() - @idle::interval;

-- name: SessionUse :exec
-- Marks that a session is used. Zero rows: another request does so.
UPDATE belfry.sessions SET used_at = now()
 WHERE id = (SELECT s.id FROM belfry.sessions s
              WHERE s.id = @id AND s.used_at < now() - interval '1 minute'
                FOR NO KEY UPDATE SKIP LOCKED);

-- name: SessionClose :exec
-- Ends the session of a cookie, by its hash.
WITH gone AS (
    DELETE FROM belfry.sessions WHERE kind = 'session' AND sha256 = @sha256 RETURNING id, name
)
INSERT INTO belfry.events (subject, name, kind, actor, detail)
SELECT 'user', name, 'signed out', name, jsonb_build_object('session', id) FROM gone;

-- name: SessionList :many
-- The sessions and links that have not expired, of everybody or of @name, newest first
-- (sessions_pkey, sessions_name_idx).
SELECT id, kind, name, role, via, address, created_at, used_at, expires_at FROM belfry.sessions
 WHERE expires_at > now() AND (@name = '' OR name = @name)
 ORDER BY id DESC;

-- name: SessionRevoke :many
-- Ends sessions and links, by id or all of @name; with @as_of none that is younger.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason)),
gone AS (
    DELETE FROM belfry.sessions s USING act
     WHERE (s.id = ANY (@ids::bigint[]) OR s.name = @name) AND (@as_of::timestamptz IS NULL OR s.created_at <= @as_of)
    RETURNING s.id, s.kind, s.name, s.role, s.via, s.address, s.created_at, s.used_at, s.expires_at
), said AS (
    INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
    SELECT 'user', name, 'session revoked', belfry.actor(), belfry.reason(), jsonb_build_object('session', id) FROM gone
)
SELECT id, kind, name, role, via, address, created_at, used_at, expires_at FROM gone ORDER BY id;
