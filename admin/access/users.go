package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// Errors of users; compare with errors.Is.
var (
	// ErrNoUser reports that no user who may sign in has the name.
	ErrNoUser = db.NewError(db.KindNotFound, "no such user")
	// ErrUserExists reports that a user has the name.
	ErrUserExists = db.NewError(db.KindConflict, "a user of that name exists already")
)

// subjectUser is the subject of users' events in belfry.events.
const subjectUser = "user"

// User is a user without the password. DisabledAt is nil unless the user is disabled. PasswordAt is nil for
// users of a provider.
type User struct {
	Name       string         `json:"name" db:"name"`
	Role       operation.Role `json:"role" db:"role"`
	CreatedAt  time.Time      `json:"created_at" db:"created_at"`
	CreatedBy  string         `json:"created_by" db:"created_by"`
	PasswordAt *time.Time     `json:"password_at" db:"password_at"`
	DisabledAt *time.Time     `json:"disabled_at" db:"disabled_at"`
	SignedInAt *time.Time     `json:"signed_in_at" db:"signed_in_at"`
}

// Affected returns the count of a receipt.
func (u User) Affected(verb string) operation.Affected {
	switch verb {
	case "disable":
		return operation.Affected{N: 1, Since: u.DisabledAt}
	case "enable":
		return operation.Affected{N: 1, Event: operation.EventKind{Subject: subjectUser, Name: u.Name, Kind: "changed", Lifted: "disabled_at"}}
	}
	return operation.Affected{N: 1}
}

// SignInLink is a link that signs a user in once. Its secret is not stored.
type SignInLink struct {
	Name      string    `json:"name"`
	ExpiresAt time.Time `json:"expires_at"`
	Secret    string    `json:"secret"`
	URL       string    `json:"url"` // opens it in the console; empty if the configuration serves none
}

// newPassword is the parameter of a new password.
type newPassword struct {
	Password string `flag:"password" label:"FILE" secret:"true" help:"the password, of 12 to 1000 characters" required:"true" allowed:"12 to 1000 characters"`
}

// hash validates the password for a user's name and returns its hash.
func (p newPassword) hash(name string) (string, error) {
	if problem := passwordProblem(name, p.Password); problem != "" {
		return "", operation.Invalid("password", "%s", problem)
	}
	hash, err := newPasswordHash(p.Password)
	return hash.String(), err
}

type newUser struct {
	Name string         `arg:"NAME"`
	Role operation.Role `flag:"role" label:"ROLE" help:"what it may do: viewer looks, author writes jobs, operator stops and corrects, admin changes what may be done at all" required:"true" allowed:"viewer, author, operator, admin"`
	newPassword
	operation.Act
}

type userPassword struct {
	Name string `arg:"NAME" values:"users list"`
	newPassword
	operation.Act
}

type userRole struct {
	Name string                           `arg:"NAME" values:"users list"`
	Role operation.Change[operation.Role] `change:"role" help:"viewer, author, operator or admin" allowed:"viewer, author, operator, admin"`
	operation.Act
}

type userAct struct {
	Name string `arg:"NAME" values:"users list"`
	operation.Act
}

func userOperations() []operation.Operation {
	const events = "the user's events"
	act := func(verb, short, long, done string, disabled *bool) operation.Operation {
		return operation.Define(operation.Operation{Name: "users " + verb, Short: short, Long: long, Role: operation.Admin,
			Changes: true, Events: events},
			func(ctx context.Context, env *operation.Env, in userAct) (User, error) {
				return changeUser(ctx, env, in.Name, in.Act, nil, nil, disabled)
			}, userText[userAct](done))
	}
	yes, no := true, false
	return []operation.Operation{
		operation.Define(operation.Operation{Name: "users list", Suggests: "name role", Short: "List the users of the HTTP API",
			Role: operation.Viewer}, listUsers, usersText),
		operation.Define(operation.Operation{
			Name: "users add", Short: "Add a user of the HTTP API", Role: operation.Admin, Changes: true, Events: events,
			Long: `Add a user who signs in to the HTTP API by name and password and has the permissions of the
role. The name is the actor of the user's acts. It is 1 to 63 of a-z, 0-9, _, -, . and @.`,
			Example: "  belfry users add ann --role operator\n  pass show belfry/ann | belfry users add ann --role operator --password-file -",
		}, addUser, userText[newUser]("is added")),
		operation.Define(operation.Operation{
			Name: "users set-password", Short: "Change a user's password and end the sessions", Role: operation.Admin, Changes: true, Events: events,
			Example: "  belfry users set-password ann",
		}, setPassword, userText[userPassword]("has another password; sessions have ended")),
		operation.Define(operation.Operation{
			Name: "users set", Short: "Change a user's role and end the sessions", Role: operation.Admin, Changes: true, Events: events,
			Long: "Change a user's role and end the sessions. Keys:\n\n{keys}", Example: "  belfry users set ann role=viewer",
		}, setUser, userText[userRole]("is changed; sessions have ended")),
		act("disable", "Disable a user and end the sessions", "", "is disabled; sessions have ended", &yes),
		act("enable", "Enable a disabled user", "", "may sign in", &no),
		operation.Define(operation.Operation{
			Name: "users remove", Short: "Remove a user and end the sessions", Role: operation.Admin, Changes: true, Events: events,
			Long: `Remove a user and end the sessions. The user's events remain. Disable the user instead if the
name must not be reused.`,
		}, removeUser, userText[userAct]("is removed; sessions have ended")),
		operation.Define(operation.Operation{
			Name: "users link", Short: "Create a link that signs a user in once within 10 minutes", Role: operation.Admin, Changes: true,
			Secret: true, Events: events,
			Long: `Create a link that signs a user in once within 10 minutes without a password. It is shown
once. POST /api/v1/login with {"link": SECRET} answers it with a session, whether or not the
name is locked out.`,
			Example: "  belfry users link ann",
		}, linkUser, func(p *text.Doc, _ userAct, l SignInLink) {
			p.Note("open %s to sign in as %s, once, until %s; the secret alone:", cmp.Or(l.URL, "/sign-in#link=SECRET of the console"),
				l.Name, l.ExpiresAt)
			p.Line("%s", l.Secret)
		}),
		operation.Timeline{
			Noun: "users", Values: "users list", Subject: subjectUser, Label: "NAME",
			Short:   "Show when users were changed and signed in, newest first",
			Example: "  belfry users events\n  belfry users events ann --json", None: "no user was ever added",
		}.Events(),
	}
}

func userText[In any](done string) func(*text.Doc, In, User) {
	return func(p *text.Doc, _ In, u User) { p.Line("user %s (%s) %s", u.Name, u.Role, done) }
}

func listUsers(ctx context.Context, env *operation.Env, _ operation.None) (operation.List[User], error) {
	return operation.AccessList[User](ctx, env, queries.userList)
}

func usersText(p *text.Doc, _ operation.None, out operation.List[User]) {
	if len(out.Items) == 0 {
		p.Line("there is no user; %s", text.Command("users add").Usage("NAME --role ROLE").To("add one"))
		return
	}
	t := text.NewTable("NAME", "ROLE", "CREATED", "BY", "PASSWORD OF", "DISABLED", "SIGNED IN")
	for _, u := range out.Items {
		t.Add(u.Name, u.Role.String(), u.CreatedAt, text.OneLine(u.CreatedBy, 60), text.Or(u.PasswordAt, "at the provider"),
			u.DisabledAt, text.Or(u.SignedInAt, "never"))
	}
	p.Table(t)
}

func addUser(ctx context.Context, env *operation.Env, in newUser) (User, error) {
	hash, err := in.hash(in.Name)
	if err != nil {
		return User{}, err
	}
	return userStatement[User](ctx, env, queries.userCreate, in.By(env),
		pgx.StrictNamedArgs{"name": in.Name, "role": in.Role.String(), "password": hash})
}

func setPassword(ctx context.Context, env *operation.Env, in userPassword) (User, error) {
	if err := ofProvider("name", in.Name, "no password here, but one at the provider"); err != nil {
		return User{}, err
	}
	hash, err := in.hash(in.Name)
	if err != nil {
		return User{}, err
	}
	return changeUser(ctx, env, in.Name, in.Act, nil, &hash, nil)
}

func setUser(ctx context.Context, env *operation.Env, in userRole) (User, error) {
	if in.Role.To == nil {
		return User{}, operation.Invalid("role", "is required; allowed values: viewer, author, operator, admin")
	}
	if err := ofProvider("name", in.Name, "the role that api.oidc.roles gives at each sign-in"); err != nil {
		return User{}, err
	}
	role := in.Role.To.String()
	return changeUser(ctx, env, in.Name, in.Act, &role, nil, nil)
}

// changeUser changes the fields that are not nil.
func changeUser(ctx context.Context, env *operation.Env, name string, act operation.Act, role, hash *string, disabled *bool) (User, error) {
	return userStatement[User](ctx, env, queries.userChange, act.By(env),
		pgx.StrictNamedArgs{"name": name, "role": role, "password": hash, "disabled": disabled})
}

func removeUser(ctx context.Context, env *operation.Env, in userAct) (User, error) {
	return userStatement[User](ctx, env, queries.userRemove, in.By(env), pgx.StrictNamedArgs{"name": in.Name})
}

func linkUser(ctx context.Context, env *operation.Env, in userAct) (SignInLink, error) {
	if err := ofProvider("name", in.Name, "no other way in than through the provider"); err != nil {
		return SignInLink{}, err
	}
	secret, hash, err := newSecret()
	if err != nil {
		return SignInLink{}, err
	}
	link, err := userStatement[SignInLink](ctx, env, queries.userLink, in.By(env), pgx.StrictNamedArgs{"name": in.Name, "sha256": hash})
	if err != nil {
		return SignInLink{}, err
	}
	if link.Secret = secret; env.Setup.Console != "" {
		link.URL = env.Setup.Console + "/sign-in#link=" + secret
	}
	return link, nil
}

// userStatement runs an act on one user in a transaction of its own.
func userStatement[T any](ctx context.Context, env *operation.Env, statement string, who job.Act,
	args pgx.StrictNamedArgs) (out T, err error) {
	args["actor"], args["reason"] = who.Actor, who.Reason
	err = db.InTx(ctx, env.DB, db.Options{Policies: true, Limit: tokenLimit}, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, statement, args)
		if err != nil {
			return err
		}
		out, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByNameLax[T])
		return err
	})
	var server *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return out, fmt.Errorf("%w: %s", ErrNoUser, text.OneLine(fmt.Sprint(args["name"]), 70))
	case errors.As(err, &server) && server.ConstraintName == "users_pkey":
		return out, ErrUserExists
	case errors.As(err, &server):
		if message, refused := db.Refusal(server); refused {
			return out, operation.RefusedText(message, server.Hint, nil)
		}
	}
	return out, err
}
