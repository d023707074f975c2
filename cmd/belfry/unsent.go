package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// unsentShown is of how many jobs it is said why their messages wait.
const unsentShown = 10

// unsentJob is a job with messages that are not final, and what they may wait for.
type unsentJob struct {
	JobID   int64
	Type    string
	Status  job.Status
	Lane    string
	Held    bool // no relay may take them: the job is ABORTED, or its lane paused
	Route   []string
	Waiting int64
	DueIn   *time.Duration // of the one due first; nil: all are in flight
	Reason  outbox.Reason  // what that one waits for; "": its first attempt
}

// unsentJobs reads the jobs with messages that are not final, most urgent first: unsentShown
// at most, or those with the ids.
func unsentJobs(ctx context.Context, db *database, ids []int64) ([]unsentJob, error) {
	rows, err := db.Pool.Query(ctx, queries.unsentJobs, pgx.StrictNamedArgs{"ids": ids, "limit": max(unsentShown, len(ids))})
	if err != nil {
		return nil, fmt.Errorf("look for unsent messages: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[unsentJob])
	if err != nil {
		return nil, fmt.Errorf("look for unsent messages: %w", err)
	}
	return list, nil
}

// carriers are who may send: the senders of this configuration, and live relays.
type carriers struct {
	configured []string // media
	live       []outbox.RelayState
	copied     bool   // the database is not adopted: relays wait
	flags      string // that name this configuration's files to belfry, with a blank before each
}

func carriersOf(ctx context.Context, s settings, db *database) (c carriers, err error) {
	for _, entry := range s.Senders {
		c.configured = append(c.configured, entry.Medium)
	}
	for _, file := range s.Files {
		c.flags += " --config " + shellWord(file)
	}
	_, relays, err := outbox.SenderStates(ctx, db.Pool, admin.RelayAlive)
	for _, r := range relays {
		if r.Live {
			c.live = append(c.live, r)
		}
	}
	if err != nil {
		return c, err
	}
	where, err := outbox.ReadInstallation(ctx, db.Pool)
	c.copied = !where.Adopted
	return c, err
}

// alive reports whether a live relay has a sender for the medium.
func (c carriers) alive(medium string) bool {
	return slices.ContainsFunc(c.live, func(r outbox.RelayState) bool { return slices.Contains(r.Media, medium) })
}

// standstill says why the messages of a job are not sent, and what to do about it.
type standstill struct {
	why, remedy string
	moving      bool // a relay sends them
}

// standstill judges one job at an instant of this machine's clock, which only adds detail.
// Nothing stands still while a relay has a sender for the next medium and something is due.
func (c carriers) standstill(u unsentJob, now time.Time) standstill {
	var lacking []string
	for _, medium := range u.Route {
		if !slices.Contains(c.configured, medium) && !c.alive(medium) {
			lacking = append(lacking, medium)
		}
	}
	switch {
	case u.Status == job.Aborted:
		return standstill{why: "held, the job is ABORTED", remedy: fmt.Sprintf("`belfry resume %d`", u.JobID)}
	case u.Held:
		return standstill{why: "held, lane " + u.Lane + " is paused", remedy: "`belfry lanes resume " + u.Lane + "`"}
	case c.copied:
		return standstill{why: "the database is a copy or was moved, and relays wait", remedy: "`belfry adopt` shows what would leave, and lets it"}
	case len(lacking) == len(u.Route) && len(c.configured) == 0 && len(c.live) == 0:
		return standstill{
			why: "nobody has a sender for " + strings.Join(lacking, " or "),
			remedy: "to try it, leave `belfry fake --write fake.yaml` running and `belfry run --deliver" + c.flags +
				" --config fake.yaml`; real ones are `senders` in the configuration",
		}
	case len(lacking) > 0 && lacking[0] == u.Route[0]:
		return standstill{why: "nobody has a sender for " + strings.Join(lacking, " or "), remedy: "add one with medium: " + lacking[0] + " to `senders` in the configuration"}
	case u.DueIn != nil && *u.DueIn > 0:
		s := standstill{why: fmt.Sprintf("the first is due %s%s", printer.Clock(now.Add(*u.DueIn)), waitsFor(u.Reason))}
		if !c.alive(u.Route[0]) {
			s.remedy = "`belfry run --deliver` sends them then, or `belfry relay` or a daemon"
		}
		return s
	case c.alive(u.Route[0]):
		return standstill{why: "relays are sending them" + waitsFor(u.Reason), remedy: fmt.Sprintf("`belfry jobs watch %d`", u.JobID), moving: u.Reason == ""}
	}
	return standstill{why: "due, and no relay is running" + waitsFor(u.Reason), remedy: "`belfry run --deliver` sends them, or `belfry relay` or a daemon"}
}

// unsentMessages is the JSON of what is not sent of one job, and why.
type unsentMessages struct {
	JobID    int64  `json:"job_id"`
	Messages int64  `json:"messages"`
	Why      string `json:"why"`
	Remedy   string `json:"remedy"` // "": nothing is to be done
}

// text is why and what to do.
func (s standstill) text() string {
	if s.remedy == "" {
		return s.why
	}
	return s.why + ": " + s.remedy
}

// waits says why the messages of one job are not sent; nothing when none waits.
func (a *app) waits(ctx context.Context, s settings, db *database, id int64) (standstill, error) {
	c, err := carriersOf(ctx, s, db)
	if err != nil {
		return standstill{}, err
	}
	list, err := unsentJobs(ctx, db, []int64{id})
	if err != nil || len(list) == 0 {
		return standstill{}, err
	}
	return c.standstill(list[0], a.now()), nil
}

// waitsFor says what a message waits for, in brackets.
func waitsFor(r outbox.Reason) string {
	if r == "" {
		return ""
	}
	return " (" + outbox.WhyText(outbox.ReasonWaiting, r) + ")"
}
