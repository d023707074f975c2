package delivery

import (
	"context"
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
	Senders    []SenderState // of live relays
	Copied     bool          // the database is not adopted, and relays wait
	Halted     bool          // belfry is halted
	Flags      string        // flags with this configuration's files, each after a blank
}

// CarriersOf reads the senders and live relays.
func CarriersOf(ctx context.Context, env *operation.Env) (Carriers, error) {
	c := Carriers{Configured: env.Media, Flags: env.ConfigFlags}
	senders, relays, err := SenderStates(ctx, env.DB, RelayAlive)
	for _, s := range senders {
		if s.Relays > 0 {
			c.Senders = append(c.Senders, s)
		}
	}
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

// Paused returns the senders of a medium that an operator has paused, and whether no other live sender has the medium.
func (c Carriers) Paused(medium string) (list []SenderState, all bool) {
	all = true
	for _, s := range c.Senders {
		switch {
		case s.Medium != medium:
		case s.PausedAt != nil:
			list = append(list, s)
		default:
			all = false
		}
	}
	return list, all && len(list) > 0
}

// Standstill is the reason why messages of a job are not sent, and the remedy.
type Standstill struct {
	Why, Remedy text.Line
	Moving      bool // a relay sends them
	Held        bool // by a halt or a paused lane
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
	still := func(remedy any, why string, args ...any) Standstill {
		return Standstill{Why: text.Sprintf(why, args...), Remedy: text.Line{text.CellOf(remedy)}}
	}
	held := func(remedy any, why string, args ...any) Standstill {
		s := still(remedy, why, args...)
		s.Held = true
		return s
	}
	paused, all := c.Paused(strings.Join(u.Route[:min(1, len(u.Route))], ""))
	start := text.Sprintf("start a daemon, %s or %s", text.Command("relay"), text.Command("run").Flag("deliver"))
	switch {
	case u.Status == job.Aborted:
		return still(text.Command("resume", u.JobID).To("resume the job"), "held, the job is %s", text.Status(u.Status))
	case u.Awaits:
		return still(text.Command("jobs approve", u.JobID).Flag("dry-run").To("show the recipients"), "held, the job waits for approval")
	case u.Held:
		return held(text.Command("lanes resume", u.Lane).To("resume the lane"),
			"held, lane %s is paused%s", text.Ref("lane", u.Lane), by(u.PausedBy))
	case c.Halted:
		return held(text.Command("unhalt").To("end the halt"), "held, everything is halted")
	case c.Copied:
		return still(text.Command("adopt").To("show the waiting messages and adopt the database"),
			"the database is a copy or was moved, and relays wait")
	case len(lacking) == len(u.Route) && len(c.Configured) == 0 && len(c.Live) == 0:
		return still(text.Sprintf("to try it, leave %s running and %s; real ones are %s in the configuration",
			text.Command("fake").Flag("write", "fake.yaml"),
			text.Command("run").Flag("deliver").Usage(strings.TrimSpace(c.Flags+" --config fake.yaml")), text.Code("senders")),
			"no sender for %s", strings.Join(lacking, " or "))
	case len(lacking) > 0 && lacking[0] == u.Route[0]:
		return still(text.Sprintf("add one with medium: %s to %s in the configuration", lacking[0], text.Code("senders")),
			"no sender for %s", strings.Join(lacking, " or "))
	case all:
		return still(text.Command("senders resume", paused[0].Name).To("resume the sender"), "held, sender %s is paused%s",
			paused[0].Name, by(paused[0].PausedBy))
	case len(paused) > 0 && u.Reason == outbox.ReasonSenderPaused:
		return still(text.Command("senders resume", paused[0].Name).To("resume the sender"), "some are held, sender %s is paused%s",
			paused[0].Name, by(paused[0].PausedBy))
	case u.DueIn != nil && *u.DueIn > 0 && c.Alive(u.Route[0]):
		return Standstill{Why: text.Sprintf("the first is due %s%s", now.Add(*u.DueIn), waitsFor(u.Reason))}
	case u.DueIn != nil && *u.DueIn > 0:
		return still(text.Sprintf("to send them then, %s", start), "the first is due %s%s", now.Add(*u.DueIn), waitsFor(u.Reason))
	case c.Alive(u.Route[0]):
		s := still(text.Command("jobs watch", u.JobID).To("watch the job"), "relays are sending them%s", waitsFor(u.Reason))
		s.Moving = u.Reason == ""
		return s
	}
	return still(text.Sprintf("to send them, %s", start), "due, and no relay is running%s", waitsFor(u.Reason))
}

// by names an operator, if known, after an act.
func by(actor string) string {
	if actor == "" {
		return ""
	}
	return " by " + text.OneLine(actor, 80)
}

// Text returns the reason and the remedy.
func (s Standstill) Text() text.Line {
	if len(s.Remedy) == 0 {
		return s.Why
	}
	return text.Sprintf("%s; %s", s.Why, s.Remedy)
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
		still.Why = text.Sprintf("behind %s of this lane (%s)", jobNames(jobs), text.Counted(messages, "message"))
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
