package delivery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// Carriers are the senders of this configuration and the live relays.
type Carriers struct {
	Configured []string // media
	Live       []RelayState
	Copied     bool   // the database is not adopted, and relays wait
	Halted     bool   // belfry is halted
	Flags      string // flags with this configuration's files, each after a blank
}

// CarriersOf reads the senders and live relays.
func CarriersOf(ctx context.Context, env *operation.Env) (Carriers, error) {
	c := Carriers{Configured: env.Media, Flags: env.ConfigFlags}
	_, relays, err := SenderStates(ctx, env.DB, RelayAlive)
	for _, r := range relays {
		if r.Live {
			c.Live = append(c.Live, r)
		}
	}
	if err != nil {
		return c, err
	}
	where, err := outbox.ReadInstallation(ctx, env.DB)
	c.Copied, c.Halted = !where.Adopted, where.Halt.At != nil
	return c, err
}

// Alive reports whether a live relay has a sender for the medium.
func (c Carriers) Alive(medium string) bool {
	return slices.ContainsFunc(c.Live, func(r RelayState) bool { return slices.Contains(r.Media, medium) })
}

// Standstill is the reason why messages of a job are not sent, and the remedy.
type Standstill struct {
	Why, Remedy string
	Moving      bool // a relay sends them
}

// Standstill returns the standstill of a job. now, by this machine's clock, is for the text only. Messages
// move while a live relay has a sender for the next medium and messages are due.
func (c Carriers) Standstill(u Unsent, now time.Time) Standstill {
	var lacking []string
	for _, medium := range u.Route {
		if !slices.Contains(c.Configured, medium) && !c.Alive(medium) {
			lacking = append(lacking, medium)
		}
	}
	switch {
	case u.Status == job.Aborted:
		return Standstill{Why: "held, the job is ABORTED", Remedy: text.Command("resume", u.JobID).String()}
	case u.Awaits:
		return Standstill{Why: "held, the job waits for approval", Remedy: text.Command("jobs approve", u.JobID).Flag("dry-run").To("show the recipients").String()}
	case u.Held:
		return Standstill{Why: "held, lane " + u.Lane + " is paused", Remedy: text.Command("lanes resume", u.Lane).String()}
	case c.Halted:
		return Standstill{Why: "held, belfry is halted", Remedy: text.Command("unhalt").String()}
	case c.Copied:
		return Standstill{Why: "the database is a copy or was moved, and relays wait", Remedy: text.Command("adopt").To("show the waiting messages and adopt the database").String()}
	case len(lacking) == len(u.Route) && len(c.Configured) == 0 && len(c.Live) == 0:
		return Standstill{
			Why: "no sender for " + strings.Join(lacking, " or "),
			Remedy: "to try it, leave `belfry fake --write fake.yaml` running and `belfry run --deliver" + c.Flags +
				" --config fake.yaml`; real ones are `senders` in the configuration",
		}
	case len(lacking) > 0 && lacking[0] == u.Route[0]:
		return Standstill{Why: "no sender for " + strings.Join(lacking, " or "), Remedy: "add one with medium: " + lacking[0] + " to `senders` in the configuration"}
	case u.DueIn != nil && *u.DueIn > 0:
		s := Standstill{Why: fmt.Sprintf("the first is due %s%s", text.LocalClock(now.Add(*u.DueIn)), waitsFor(u.Reason))}
		if !c.Alive(u.Route[0]) {
			s.Remedy = "to send them then, start a daemon, " + text.Command("relay").String() + " or " + text.Command("run").Flag("deliver").String()
		}
		return s
	case c.Alive(u.Route[0]):
		return Standstill{Why: "relays are sending them" + waitsFor(u.Reason), Remedy: text.Command("jobs watch", u.JobID).String(), Moving: u.Reason == ""}
	}
	return Standstill{Why: "due, and no relay is running" + waitsFor(u.Reason), Remedy: "to send them, start a daemon, " + text.Command("relay").String() + " or " + text.Command("run").Flag("deliver").String()}
}

// Text returns the reason and the remedy.
func (s Standstill) Text() string {
	if s.Remedy == "" {
		return s.Why
	}
	return s.Why + ": " + s.Remedy
}

// StandstillOf returns the standstill of one job. It is empty if no message waits.
func StandstillOf(ctx context.Context, env *operation.Env, id int64) (Standstill, error) {
	c, err := CarriersOf(ctx, env)
	if err != nil {
		return Standstill{}, err
	}
	list, err := UnsentJobs(ctx, env.DB, []int64{id}, 1)
	if err != nil || len(list) == 0 {
		return Standstill{}, err
	}
	still := c.Standstill(list[0], env.Time())
	if !still.Moving {
		return still, nil
	}
	jobs, messages, err := Ahead(ctx, env.DB, id)
	if err == nil && len(jobs) > 0 {
		still.Why = fmt.Sprintf("behind %s of this lane (%s)", jobNames(jobs), text.Counted(messages, "message"))
	}
	return still, err
}

// jobNames lists jobs, three at most: "jobs 7, 9 and 2 more".
func jobNames(ids []int64) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = text.Int(id)
	}
	if len(names) == 1 {
		return "job " + names[0]
	}
	return "jobs " + operation.SomeNames(names)
}

// waitsFor returns the reason of a wait in brackets.
func waitsFor(r outbox.Reason) string {
	if r == "" {
		return ""
	}
	return " (" + outbox.WhyText(outbox.ReasonWaiting, r) + ")"
}
