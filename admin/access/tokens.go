package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// Errors of tokens; compare with errors.Is.
var (
	// ErrToken reports the secret of an unknown, expired or revoked token.
	ErrToken = errors.New("the token is unknown, expired or revoked")
	// ErrNoToken reports that no token has the name.
	ErrNoToken = db.NewError(db.KindNotFound, "no such token")
	// ErrTokenExists reports that a current or former token has the name.
	ErrTokenExists = db.NewError(db.KindConflict, "a token of that name exists already, or existed")
)

// tokenPrefix begins every secret, so that secret scanners recognize it.
const tokenPrefix = "belfry_"

// tokenLimit is the deadline of a statement of this package.
const tokenLimit = 10 * time.Second

// Token is a token without its secret. It is valid until it expires or is revoked.
type Token struct {
	Name       string         `json:"name" db:"name"`
	Role       operation.Role `json:"role" db:"role"`
	CreatedAt  time.Time      `json:"created_at" db:"created_at"`
	CreatedBy  string         `json:"created_by" db:"created_by"`
	ExpiresAt  time.Time      `json:"expires_at" db:"expires_at"`
	RevokedAt  *time.Time     `json:"revoked_at" db:"revoked_at"`
	LastUsedAt *time.Time     `json:"last_used_at" db:"last_used_at"`
}

// Affected returns the count of a receipt.
func (t Token) Affected(verb string) operation.Affected {
	if verb == "revoke" {
		return operation.Affected{N: 1, Since: t.RevokedAt}
	}
	return operation.Affected{N: 1}
}

// NewToken is a new token with its secret, which is not stored.
type NewToken struct {
	Token

	Secret string `json:"secret"`
}

// Identity is an authenticated caller: a token, a user with a session, or a user of the proxy.
type Identity struct {
	Name string
	Role operation.Role
	// User reports a user of belfry.users. A token may have the same name.
	User bool
	// Proxy reports a user whom the proxy has named. A token or a user may have the same name.
	Proxy bool
}

// Key returns a name that is unique among tokens, users and users of the proxy.
func (i Identity) Key() string {
	if i.Proxy {
		return "proxy:" + i.Name
	}
	if i.User {
		return "user:" + i.Name
	}
	return i.Name
}

// Authenticate returns the identity of a token's secret, or ErrToken. With mark it records the use of the
// token once a minute. It is safe for concurrent use. It looks the hash up in an index, so that its duration
// reveals nothing about a secret.
func Authenticate(ctx context.Context, pool *pgxpool.Pool, secret string, mark bool) (Identity, error) {
	if !strings.HasPrefix(secret, tokenPrefix) || len(secret) > 100 {
		return Identity{}, ErrToken
	}
	var id int64
	var who Identity
	var unmarked bool
	hash := sha256.Sum256([]byte(secret))
	err := db.InTx(ctx, pool, db.Options{Policies: true, Limit: tokenLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, queries.tokenFind, pgx.StrictNamedArgs{"sha256": hash[:]}).Scan(&id, &who.Name, &who.Role, &unmarked)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Identity{}, ErrToken
	}
	if err != nil {
		return Identity{}, fmt.Errorf("find a token: %w", err)
	}
	if mark && unmarked {
		err = db.InTx(ctx, pool, db.Options{Policies: true, Limit: tokenLimit}, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, queries.tokenUse, pgx.StrictNamedArgs{"id": id})
			return err
		})
		if err != nil && db.ClassOf(err) != db.ReadOnly {
			return Identity{}, fmt.Errorf("mark a token as used: %w", err)
		}
	}
	return who, nil
}

type newToken struct {
	Name    string            `arg:"NAME"`
	Role    operation.Role    `flag:"role" label:"ROLE" help:"what it may do: viewer looks, author writes jobs, operator stops and corrects, admin changes what may be done at all" required:"true" allowed:"viewer, author, operator, admin"`
	Expires operation.Instant `flag:"expires-at" label:"TIME" help:"when it ends, within 366 days: RFC 3339, or +720h from now (default +2160h, 90 days)" default:"+2160h"`
	operation.Act
}

type tokenAct struct {
	Name string `arg:"NAME" values:"tokens list"`
	operation.Act
}

func tokenOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "tokens list", Suggests: "name role", Short: "List the tokens of the HTTP API", Role: operation.Viewer,
			Long: `List all tokens of the HTTP API, including expired and revoked ones. Secrets are not stored.`,
		}, listTokens, tokensText),
		operation.Define(operation.Operation{
			Name: "tokens create", Short: "Make a token for the HTTP API", Role: operation.Admin, Changes: true, Secret: true,
			Events: "the token's events",
			Long: `Make a token for the HTTP API and show its secret, once. Whoever has it may do what its
role may, until it expires or is revoked; its name is the actor of what is done with it. A
name is 1 to 63 of a-z, 0-9, _, -, . and @, and is not used twice.`,
			Example: `  belfry tokens create ci --role viewer
  belfry tokens create ann --role operator --expires-at +24h --reason "on call"`,
		}, createToken, func(p *text.Doc, _ newToken, t NewToken) {
			p.Note("token %s may do what the role %s may, until %s; this is shown once:", t.Name, t.Role, t.ExpiresAt)
			p.Line("%s", t.Secret)
		}),
		operation.Define(operation.Operation{
			Name: "tokens revoke", Short: "End a token at once", Role: operation.Admin, Changes: true, Events: "the token's events",
			Example: `  belfry tokens revoke ci --reason "it was in a log"`,
		}, revokeToken, func(p *text.Doc, _ tokenAct, t Token) {
			p.Line("token %s is revoked since %s", t.Name, text.Or(t.RevokedAt, "-"))
		}),
		operation.Timeline{
			Noun: "tokens", Values: "tokens list", Subject: "token", Label: "NAME", Short: "Show when tokens were made and revoked, newest first",
			Example: "  belfry tokens events\n  belfry tokens events ci --json", None: "no token was ever made",
		}.Events(),
	}
}

func listTokens(ctx context.Context, env *operation.Env, _ operation.None) (operation.List[Token], error) {
	return operation.AccessList[Token](ctx, env, queries.tokenList)
}

func tokensText(p *text.Doc, _ operation.None, out operation.List[Token]) {
	if len(out.Items) == 0 {
		p.Line("there is no token; %s", text.Command("tokens create").Usage("NAME --role ROLE").To("create one"))
		return
	}
	t := text.NewTable("NAME", "ROLE", "CREATED", "BY", "EXPIRES", "REVOKED", "LAST USED")
	for _, o := range out.Items {
		t.Add(o.Name, o.Role.String(), o.CreatedAt, text.OneLine(o.CreatedBy, 60), o.ExpiresAt, o.RevokedAt, text.Or(o.LastUsedAt, "never"))
	}
	p.Table(t)
}

func createToken(ctx context.Context, env *operation.Env, in newToken) (NewToken, error) {
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return NewToken{}, err
	}
	secret := tokenPrefix + base64.RawURLEncoding.EncodeToString(random)
	hash := sha256.Sum256([]byte(secret))
	token, err := tokenStatement(ctx, env, queries.tokenCreate, in.By(env), pgx.StrictNamedArgs{
		"name": in.Name, "role": in.Role.String(), "sha256": hash[:], "expires_at": in.Expires.At(env.Time()),
	})
	if err != nil {
		return NewToken{}, err
	}
	return NewToken{token, secret}, nil
}

func revokeToken(ctx context.Context, env *operation.Env, in tokenAct) (Token, error) {
	return tokenStatement(ctx, env, queries.tokenRevoke, in.By(env), pgx.StrictNamedArgs{"name": in.Name})
}

// tokenStatement runs an act on one token in a transaction of its own.
func tokenStatement(ctx context.Context, env *operation.Env, statement string, who job.Act, args pgx.StrictNamedArgs) (t Token, err error) {
	args["actor"], args["reason"] = who.Actor, who.Reason
	err = db.InTx(ctx, env.DB, db.Options{Policies: true, Limit: tokenLimit}, func(ctx context.Context, tx pgx.Tx) error {
		t, err = db.One[Token](ctx, tx, statement, args)
		return err
	})
	var server *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return t, fmt.Errorf("%w: %s", ErrNoToken, text.OneLine(fmt.Sprint(args["name"]), 70))
	case errors.As(err, &server) && server.ConstraintName == "tokens_name_key":
		return t, operation.Advise(ErrTokenExists, "names are never reused, so that events identify the token")
	case errors.As(err, &server):
		if message, refused := db.Refusal(server); refused {
			return t, operation.RefusedText(message, server.Hint, nil)
		}
	}
	return t, err
}
