-- The tokens of the HTTP API. belfry.act sets the actor and the reason of events.
-- name: TokenCreate :one
-- Creates a token whose secret has the hash @sha256. A taken name violates tokens_name_key.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
INSERT INTO belfry.tokens (name, role, sha256, created_by, expires_at)
SELECT @name, @role, @sha256, belfry.actor(), @expires_at FROM act
RETURNING name, role, created_at, created_by, expires_at, revoked_at, last_used_at;

-- name: TokenList :many
-- Every token, by name (tokens_name_key).
SELECT name, role, created_at, created_by, expires_at, revoked_at, last_used_at FROM belfry.tokens ORDER BY name;

-- name: TokenRevoke :one
-- Revokes a token. A revoked token remains unchanged. Zero rows: no token has the name.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
UPDATE belfry.tokens t SET revoked_at = coalesce(t.revoked_at, clock_timestamp()) FROM act
 WHERE t.name = @name
RETURNING t.name, t.role, t.created_at, t.created_by, t.expires_at, t.revoked_at, t.last_used_at;

-- name: TokenFind :one
-- Finds a valid token by the hash of its secret (tokens_sha256_key). unmarked is true if last_used_at is
-- a minute old.
SELECT id, name, role, coalesce(last_used_at < now() - interval '1 minute', true) AS unmarked
  FROM belfry.tokens
 WHERE sha256 = @sha256 AND revoked_at IS NULL AND expires_at > now();

-- name: TokenUse :exec
-- Records the use of a token. Zero rows: another request records it.
UPDATE belfry.tokens SET last_used_at = now()
 WHERE id = (SELECT t.id FROM belfry.tokens t
              WHERE t.id = @id AND coalesce(t.last_used_at < now() - interval '1 minute', true)
                FOR NO KEY UPDATE SKIP LOCKED);

-- The users of the HTTP API, and their sessions.
-- name: UserCreate :one
-- Creates a user. A taken name violates users_pkey.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
INSERT INTO belfry.users (name, role, password, created_by)
SELECT @name, @role, @password, belfry.actor() FROM act
RETURNING name, role, created_at, created_by, password_at, disabled_at, signed_in_at;

-- name: UserList :many
-- Every user, by name (users_pkey).
SELECT name, role, created_at, created_by, password_at, disabled_at, signed_in_at FROM belfry.users ORDER BY name;

-- name: UserChange :one
-- Changes a user. Null parameters, and an equal @disabled, change nothing. Zero rows: no user has the name.
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
-- Removes a user and the user's sessions. Zero rows: no user has the name.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
DELETE FROM belfry.users u USING act WHERE u.name = @name
RETURNING u.name, u.role, u.created_at, u.created_by, u.password_at, u.disabled_at, u.signed_in_at;

-- name: UserPassword :one
-- The password hash of an enabled user (users_pkey). Zero rows: there is no such user, or the user is a
-- provider's.
SELECT password FROM belfry.users WHERE name = @name AND password IS NOT NULL AND disabled_at IS NULL;

-- name: UserLink :one
-- Creates a link that signs a user in once within ten minutes. Zero rows: no enabled user has the name.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason)),
link AS (
    INSERT INTO belfry.sessions (kind, sha256, name, role, via, expires_at)
    SELECT 'link', @sha256, u.name, u.role, 'link', now() + interval '10 minutes'
      FROM belfry.users u, act WHERE u.name = @name AND u.disabled_at IS NULL FOR SHARE OF u
    RETURNING name, expires_at
), event AS (
    INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
    SELECT 'user', name, 'link', belfry.actor(), belfry.reason(), jsonb_build_object('expires_at', expires_at) FROM link
)
SELECT name, expires_at FROM link;

-- name: UserSignedIn :exec
-- Records a sign-in, and replaces the password's hash by @password unless that is null.
WITH who AS (
    UPDATE belfry.users SET signed_in_at = now(), password = coalesce(@password::text, password) WHERE name = @name
)
INSERT INTO belfry.events (subject, name, kind, actor, detail)
VALUES ('user', @name, 'signed in', @name, jsonb_build_object('session', @id::bigint, 'via', @via::text, 'address', @address::text));

-- name: UserLockedOut :exec
-- Records a lockout. It inserts one row in any case, so that its duration does not reveal whether a user
-- has the name. The names of unknown users are not stored.
INSERT INTO belfry.events (subject, name, kind, actor, detail)
SELECT 'user', coalesce((SELECT u.name FROM belfry.users u WHERE u.name = @name), ''), 'locked out', 'belfry', jsonb_build_object('address', @address::text);

-- name: UserKnownFrom :one
-- Whether a name signed in from @address in the last 30 days (events_subject_idx). Always one row.
SELECT EXISTS (SELECT FROM belfry.events
                WHERE subject = 'user' AND name = @name AND kind = 'signed in' AND at > now() - interval '30 days' AND detail ->> 'address' = @address::text);

-- name: SessionOpen :one
-- Opens a session for an enabled user whose hash is still @password. Zero rows: the hash has changed, or
-- the user is disabled.
INSERT INTO belfry.sessions (kind, sha256, name, role, via, address, expires_at)
SELECT 'session', @sha256, u.name, u.role, 'password', @address, now() + @lifetime::interval
  FROM belfry.users u WHERE u.name = @name AND u.password = @password AND u.disabled_at IS NULL FOR NO KEY UPDATE
RETURNING id, name, role, expires_at;

-- name: SessionExchange :one
-- Opens a session for the user of a link, by its hash, and deletes the link. Zero rows: the link is used,
-- expired or unknown, or the user is disabled.
WITH used AS (
    DELETE FROM belfry.sessions WHERE kind = 'link' AND sha256 = @link AND expires_at > now() RETURNING name
), who AS (
    SELECT u.name, u.role FROM belfry.users u JOIN used USING (name) WHERE u.disabled_at IS NULL FOR NO KEY UPDATE OF u
)
INSERT INTO belfry.sessions (kind, sha256, name, role, via, address, expires_at)
SELECT 'session', @sha256, who.name, who.role, 'link', @address, now() + @lifetime::interval FROM who
RETURNING id, name, role, expires_at;

-- name: SignInOnce :exec
-- Marks the state of a sign-in as used. Requests are stored for 24 hours, longer than a sign-in may take.
-- Zero rows: the state was used before (requests_pkey).
INSERT INTO belfry.requests (who, key, fingerprint, ends_at, status)
VALUES ('oidc:', @state, sha256(convert_to(@state, 'UTF8')), clock_timestamp(), 200)
ON CONFLICT ON CONSTRAINT requests_pkey DO NOTHING;

-- name: UserMeet :exec
-- Creates the user of an identity. Zero rows: the user exists (users_identity_key), or another user has
-- the name (users_pkey).
WITH act AS MATERIALIZED (SELECT belfry.act(@name, @reason))
INSERT INTO belfry.users (name, role, identity, password_at, created_by)
SELECT @name, @role, @identity, NULL, belfry.actor() FROM act
ON CONFLICT DO NOTHING;

-- name: UserRole :exec
-- Sets the role of the user of an identity (users_identity_key). A change ends the user's sessions. Zero
-- rows: the role is equal, or there is no enabled user.
WITH act AS MATERIALIZED (SELECT belfry.act(@name, @reason))
UPDATE belfry.users u SET role = @role FROM act WHERE u.identity = @identity AND u.role <> @role AND u.disabled_at IS NULL;

-- name: SessionAdmit :one
-- Opens a session for the user of an identity (users_identity_key). Zero rows: there is no enabled user.
INSERT INTO belfry.sessions (kind, sha256, name, role, via, address, expires_at)
SELECT 'session', @sha256, u.name, u.role, 'oidc', @address, now() + @lifetime::interval
  FROM belfry.users u WHERE u.identity = @identity AND u.disabled_at IS NULL FOR NO KEY UPDATE
RETURNING id, name, role, expires_at;

-- name: UserOfIdentity :one
-- The name of the user of an identity (users_identity_key). Zero rows: there is no such user.
SELECT name FROM belfry.users WHERE identity = @identity;

-- name: SessionDismiss :exec
-- Ends the sessions of the user of an identity (users_identity_key, sessions_name_idx).
WITH gone AS (
    DELETE FROM belfry.sessions s USING belfry.users u WHERE u.identity = @identity AND s.name = u.name RETURNING s.id, s.name
)
INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
SELECT 'user', name, 'session revoked', name, @reason, jsonb_build_object('session', id) FROM gone;

-- name: SessionPrune :exec
-- Deletes up to 100 expired sessions (sessions_expires_at_idx), and all except the newest 20 sessions of a
-- user (sessions_name_idx).
WITH expired AS (
    SELECT id FROM belfry.sessions WHERE expires_at < now() ORDER BY expires_at LIMIT 100 FOR UPDATE SKIP LOCKED
), surplus AS (
    SELECT id FROM belfry.sessions WHERE name = @name ORDER BY id DESC OFFSET 20
)
DELETE FROM belfry.sessions WHERE id IN (SELECT id FROM expired UNION ALL SELECT id FROM surplus);

-- name: SessionFind :one
-- Finds a valid session by the hash of its cookie (sessions_sha256_key). unmarked is true if used_at is a
-- minute old.
SELECT id, name, role, used_at < now() - interval '1 minute' AS unmarked
  FROM belfry.sessions
 WHERE kind = 'session' AND sha256 = @sha256 AND expires_at > now() AND used_at > now() - @idle::interval;

-- name: SessionsPeek :many
-- Finds valid sessions by the hashes of their cookies, like SessionFind.
SELECT sha256, name, role FROM belfry.sessions
 WHERE kind = 'session' AND sha256 = ANY (@sha256::bytea[]) AND expires_at > now() AND used_at > now() - @idle::interval;

-- name: SessionUse :exec
-- Records the use of a session. Zero rows: another request records it.
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
-- Sessions and links that have not expired, of all users or of @name, newest first
-- (sessions_pkey, sessions_name_idx).
SELECT id, kind, name, role, via, address, created_at, used_at, expires_at FROM belfry.sessions
 WHERE expires_at > now() AND (@name = '' OR name = @name)
 ORDER BY id DESC;

-- name: SessionRevoke :many
-- Ends sessions and links by id, or all of @name. Sessions after @as_of are skipped.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason)),
gone AS (
    DELETE FROM belfry.sessions s USING act
     WHERE (s.id = ANY (@ids::bigint[]) OR s.name = @name) AND (@as_of::timestamptz IS NULL OR s.created_at <= @as_of)
    RETURNING s.id, s.kind, s.name, s.role, s.via, s.address, s.created_at, s.used_at, s.expires_at
), event AS (
    INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
    SELECT 'user', name, 'session revoked', belfry.actor(), belfry.reason(), jsonb_build_object('session', id) FROM gone
)
SELECT id, kind, name, role, via, address, created_at, used_at, expires_at FROM gone ORDER BY id;
