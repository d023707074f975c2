package admin

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/printer"
)

// ErrNoSession reports that none of the sessions that were to end is there.
var ErrNoSession = errors.New("no such session")

// Session is what may be known of somebody who is signed in, or of a link that waits for its
// user.
type Session struct {
	ID        int64     `json:"id" db:"id"`
	Kind      string    `json:"kind" db:"kind"`
	Name      string    `json:"name" db:"name"`
	Role      Role      `json:"role" db:"role"`
	Via       string    `json:"via" db:"via"`
	Address   string    `json:"address" db:"address" mask:"text"`
	CreatedAt time.Time `json:"created_at" db:"created_at"`
	UsedAt    time.Time `json:"used_at" db:"used_at"`
	ExpiresAt time.Time `json:"expires_at" db:"expires_at"`
}

// EndedSessions are sessions and links that were ended.
type EndedSessions struct {
	Sessions []Session `json:"sessions"`
}

func (e EndedSessions) account() account {
	return account{n: int64(len(e.Sessions)), noun: "session"}
}

type sessionFilter struct {
	User string `flag:"user" label:"NAME" values:"users list" help:"only those of this user"`
}

type sessionAct struct {
	IDs  []int64 `arg:"[ID]..." values:"sessions list" is:"a session's id" min:"1" allowed:"whole numbers from 1, as belfry sessions list shows them"`
	User string  `flag:"user" label:"NAME" values:"users list" help:"all of this user's"`
	Act
}

// check refuses an act on nothing, or on two things at once.
func (in *sessionAct) check(Operation, time.Time) error {
	if (len(in.IDs) == 0) == (in.User == "") {
		return invalid("", "sessions revoke takes either the ids of sessions or --user NAME")
	}
	return nil
}

func sessionOperations() []Operation {
	return []Operation{
		Define(Operation{
			Name: "sessions list", Offers: "id name", Short: "List who is signed in to the HTTP API", Role: Viewer,
			Long: "List the sessions of the HTTP API that have not expired, and the links that nobody has used.",
		}, listSessions, sessionsText),
		Define(Operation{
			Name: "sessions revoke", Short: "End sessions at once", Role: Admin, Changes: true, Events: "the user's events", Usage: "{ID... | --user NAME}",
			Example: "  belfry sessions revoke 17\n  belfry sessions revoke --user ann --reason \"lost laptop\"",
		}, revokeSessions, func(p *printer.Page, _ sessionAct, out EndedSessions) {
			p.Printf("%s ended\n", printer.Counted(int64(len(out.Sessions)), "session"))
		}),
	}
}

func listSessions(ctx context.Context, env *Env, in sessionFilter) (List[Session], error) {
	rows, err := env.DB.Query(ctx, queries.sessionList, pgx.StrictNamedArgs{"name": in.User})
	if err != nil {
		return List[Session]{}, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Session])
	return List[Session]{Items: list}, err
}

func sessionsText(p *printer.Page, _ sessionFilter, out List[Session]) {
	if len(out.Items) == 0 {
		p.Printf("nobody is signed in\n")
		return
	}
	t := printer.NewTable("ID", "KIND", "USER", "ROLE", "BY", "FROM", "SINCE", "USED", "UNTIL")
	for _, s := range out.Items {
		t.Add(printer.Int(s.ID), s.Kind, s.Name, s.Role.String(), s.Via, s.Address, p.Clock(s.CreatedAt), p.Clock(s.UsedAt), p.Clock(s.ExpiresAt))
	}
	p.Table(t)
}

func revokeSessions(ctx context.Context, env *Env, in sessionAct) (out EndedSessions, err error) {
	who := in.by(env)
	err = db.InTx(ctx, env.DB, db.Options{Limit: tokenLimit}, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.sessionRevoke, pgx.StrictNamedArgs{"actor": who.Actor, "reason": who.Reason, "ids": in.IDs, "name": in.User})
		if err != nil {
			return err
		}
		out.Sessions, err = pgx.CollectRows(rows, pgx.RowToStructByName[Session])
		return err
	})
	if err == nil && len(out.Sessions) == 0 {
		err = ErrNoSession
	}
	return out, err
}
