package access

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
)

// ErrNoSession reports that none of the selected sessions exists.
var ErrNoSession = db.NewError(db.KindNotFound, "no such session")

// Session is a session or an unused sign-in link, without its secret.
type Session struct {
	ID        int64          `json:"id" db:"id"`
	Kind      string         `json:"kind" db:"kind"`
	Name      string         `json:"name" db:"name"`
	Role      operation.Role `json:"role" db:"role"`
	Via       string         `json:"via" db:"via"`
	Address   string         `json:"address" db:"address" mask:"text"`
	CreatedAt time.Time      `json:"created_at" db:"created_at"`
	UsedAt    time.Time      `json:"used_at" db:"used_at"`
	ExpiresAt time.Time      `json:"expires_at" db:"expires_at"`
}

// EndedSessions is the result of sessions revoke.
type EndedSessions struct {
	Plan     *operation.Plan `json:"plan,omitempty"` // set for a plan, which ends no session
	Sessions []Session       `json:"sessions"`
}

// Affected returns the count of a receipt.
func (e EndedSessions) Affected(string) operation.Affected {
	return operation.Affected{N: int64(len(e.Sessions)), Noun: "session", Plan: e.Plan}
}

type sessionFilter struct {
	User string `flag:"user" label:"NAME" values:"users list" help:"only sessions of this user"`
}

type sessionAct struct {
	IDs  []int64 `arg:"[ID]..." values:"sessions list" is:"a session's id" min:"1" allowed:"whole numbers from 1, as belfry sessions list shows them"`
	User string  `flag:"user" label:"NAME" values:"users list" help:"all sessions of this user"`
	operation.PlanFlags
	operation.Act
}

// Check requires ids or a user, and not both.
func (in *sessionAct) Check(operation.Operation, time.Time) error {
	if (len(in.IDs) == 0) == (in.User == "") {
		return operation.Invalid("", "sessions revoke takes either the ids of sessions or --user NAME")
	}
	return nil
}

func sessionOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "sessions list", Suggests: "id name", Short: "List who is signed in to the HTTP API", Role: operation.Viewer,
			Long: "List the sessions of the HTTP API that have not expired, and unused sign-in links.",
		}, listSessions, sessionsText),
		operation.Define(operation.Operation{
			Name: "sessions revoke", Short: "End sessions at once", Role: operation.Admin, Changes: true, Events: "the user's events",
			Usage: "{ID... | --user NAME}",
			Long: `End sessions and unused sign-in links immediately. --dry-run counts them by user. With the
token of that plan (--plan) later sessions are skipped, and the operation fails if the count
differs.`,
			Example: "  belfry sessions revoke 17\n  belfry sessions revoke --user ann --dry-run\n  belfry sessions revoke --user " +
				"ann --reason \"lost laptop\"",
		}, revokeSessions, func(p *text.Doc, _ sessionAct, out EndedSessions) {
			if out.Plan != nil {
				out.Plan.Text(p, "session", "ended")
				return
			}
			p.Line("%s ended", text.Counted(int64(len(out.Sessions)), "session"))
		}),
	}
}

func listSessions(ctx context.Context, env *operation.Env, in sessionFilter) (operation.List[Session], error) {
	return operation.AccessList[Session](ctx, env, queries.sessionList, pgx.StrictNamedArgs{"name": in.User})
}

func sessionsText(p *text.Doc, _ sessionFilter, out operation.List[Session]) {
	if len(out.Items) == 0 {
		p.Line("no sessions")
		return
	}
	t := text.NewTable("ID", "KIND", "USER", "ROLE", "BY", "FROM", "SINCE", "USED", "UNTIL")
	for _, s := range out.Items {
		t.Add(text.Int(s.ID), s.Kind, s.Name, s.Role.String(), s.Via, s.Address, s.CreatedAt, s.UsedAt, s.ExpiresAt)
	}
	p.Table(t)
}

// revokeSessions ends the selected sessions. A plan rolls the transaction back.
func revokeSessions(ctx context.Context, env *operation.Env, in sessionAct) (out EndedSessions, err error) {
	who := in.By(env)
	args := pgx.StrictNamedArgs{"actor": who.Actor, "reason": who.Reason, "ids": in.IDs, "name": in.User, "as_of": nil}
	var asOf time.Time
	if in.DryRun || in.Bound() { // otherwise sessions that were opened just now are ended too
		if asOf, err = in.Moment(ctx, env); err != nil {
			return out, err
		}
		args["as_of"] = asOf
	}
	err = db.InTx(ctx, env.DB, db.Options{Policies: true, Limit: tokenLimit}, func(ctx context.Context, tx pgx.Tx) error {
		out = EndedSessions{}
		ended, err := db.All[Session](ctx, tx, queries.sessionRevoke, args)
		if err != nil {
			return err
		}
		plan := in.plan(ended, asOf)
		switch err := in.Agrees(plan, "session", "ended"); {
		case err != nil:
			return err
		case in.DryRun:
			out = EndedSessions{plan, []Session{}}
			return operation.ErrPlanned
		case len(ended) == 0 && in.Plan == nil:
			return ErrNoSession
		}
		out.Sessions = ended
		return nil
	})
	if errors.Is(err, operation.ErrPlanned) {
		err = nil
	}
	return out, err
}

// plan counts sessions and links by user, and lists unknown ids.
func (in sessionAct) plan(ended []Session, asOf time.Time) *operation.Plan {
	p := &operation.Plan{Selection: "all of user " + in.User, AsOf: asOf, Count: int64(len(ended)), Outcomes: []operation.Outcome{}}
	for _, s := range ended {
		of := s.Kind + "s of " + s.Name
		i := slices.IndexFunc(p.Outcomes, func(o operation.Outcome) bool { return o.Of == of })
		if i < 0 {
			i, p.Outcomes = len(p.Outcomes), append(p.Outcomes, operation.Outcome{Of: of, Outcome: "ended"})
		}
		p.Outcomes[i].Count++
	}
	if in.User != "" {
		return p
	}
	names := make([]string, len(in.IDs))
	for i, id := range in.IDs {
		names[i] = text.Int(id)
		if !slices.ContainsFunc(ended, func(s Session) bool { return s.ID == id }) {
			p.Outcomes = append(p.Outcomes, operation.Outcome{Of: "session " + names[i], Outcome: "left", Detail: "it did not exist at that time"})
		}
	}
	p.Selection = "sessions " + strings.Join(names, ", ")
	return p
}
