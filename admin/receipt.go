package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// Receipt answers an act: what is done is in force.
type Receipt struct {
	// AskedAt is when the act reached belfry, by the clock of this process.
	AskedAt time.Time `json:"asked_at"`
	// InForceSince is since when what was asked for holds, by the database's clock: an act
	// that changed nothing has been in force for longer than it was asked for. nil: the
	// database did not say, or it has never been otherwise.
	InForceSince *time.Time `json:"in_force_since"`
	// Concerned is how many things the act was about and found: jobs, messages, rows. Of a
	// halt, and of its end, the jobs that it stopped.
	Concerned int64 `json:"concerned"`
}

// Acted is what Run returns of an operation that changed something: the result and the
// receipt. Its JSON is the result's, with the receipt as one more field.
type Acted struct {
	Result  any
	Receipt Receipt
}

// MarshalJSON adds the receipt to the result, which is an object.
func (a Acted) MarshalJSON() ([]byte, error) {
	result, err := plainJSON(a.Result)
	if err != nil {
		return nil, err
	}
	receipt, err := plainJSON(a.Receipt)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(result, []byte("}")))
	if len(result) > len("{}") {
		b.WriteByte(',')
	}
	b.WriteString(`"receipt":`)
	b.Write(receipt)
	b.WriteByte('}')
	return b.Bytes(), nil
}

// plainJSON is JSON whose texts are left as they are; whoever encodes it further escapes
// them as it wants.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// account is what a receipt says of a result.
type account struct {
	n      int64
	noun   string     // of what n counts; "": it is about the one thing that the result shows
	since  *time.Time // nil: as event says
	event  eventKind  // since when it was last; zero: from now on
	halted bool       // n is how many jobs the newest halt stopped
	none   bool       // nothing was done: it was a plan
}

// eventKind is a kind of events of one thing; with lifted, those that set this member to null.
type eventKind struct{ subject, name, kind, lifted string }

// accountOf reads the result of an act. What it does not know is about one thing, which holds
// from now on. What was so before, as a lane that is paused already, has been since then: what
// goes on since the newest event that says so, which an act that changed something wrote itself.
func accountOf(verb string, result any) account {
	if own, is := result.(interface{ account() account }); is {
		return own.account()
	}
	a := account{n: 1}
	switch r := result.(type) {
	case job.Lane:
		a.since = r.PausedAt
	case Sender:
		a.since = r.PausedAt
	case schedule.Schedule:
		a.since = r.PausedAt
	case channels.OptOut:
		a.since = &r.OptedOutAt
	case Token:
		a.since = r.RevokedAt
	case User:
		a.since = r.DisabledAt
	}
	if !slices.Contains([]string{"pause", "opt-out", "revoke", "disable"}, verb) {
		a.since = nil
	}
	if verb == "resume" || verb == "enable" {
		switch r := result.(type) {
		case job.Lane:
			a.event = eventKind{job.SubjectLane, r.Name, "resumed", ""}
		case Sender:
			a.event = eventKind{delivery.SubjectSender, r.Name, "resumed", ""}
		case schedule.Schedule:
			a.event = eventKind{job.SubjectSchedule, r.Name, "resumed", ""}
		case User:
			a.event = eventKind{subjectUser, r.Name, "changed", "disabled_at"}
		}
	}
	return a
}

// receiptLimit bounds the questions for since when and how many: the act is done.
const receiptLimit = 2 * time.Second

// receipted adds the receipt to what came of an act.
func receipted(ctx context.Context, env *Env, o Operation, asked time.Time, result any) any {
	a := accountOf(o.Verb(), result)
	if a.none {
		return result
	}
	r := Receipt{AskedAt: asked.UTC(), InForceSince: a.since, Concerned: a.n}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), receiptLimit)
	defer cancel()
	switch {
	case a.since != nil || env.Jobs == nil:
	case a.event != eventKind{}:
		r.InForceSince, _ = newest(ctx, env, a.event)
	default:
		if now, err := env.Jobs.Now(ctx); err == nil {
			r.InForceSince = &now
		}
	}
	if a.halted {
		_, r.Concerned = newest(ctx, env, eventKind{subjectInstallation, "", "halted", ""})
	}
	return Acted{result, r}
}

// newest is when the newest event of a kind was, and of how many jobs; nil: there is none since the
// thing was made, or the database does not say.
func newest(ctx context.Context, env *Env, e eventKind) (at *time.Time, jobs int64) {
	err := reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, queries.eventNewest, pgx.StrictNamedArgs{"subject": e.subject, "name": e.name, "kind": e.kind, "lifted": e.lifted}).Scan(&at, &jobs)
	})
	if err != nil || at == nil {
		return nil, 0
	}
	utc := at.UTC()
	return &utc, jobs
}

// withReceipt is a result that was read, with its receipt; a plan has none.
func withReceipt(o Operation, out any, result []byte) (any, error) {
	var answer struct {
		Receipt *Receipt `json:"receipt"`
	}
	if err := json.Unmarshal(result, &answer); err != nil {
		return nil, fmt.Errorf("the receipt of %s: %w", o.Name, err)
	}
	if answer.Receipt == nil {
		return out, nil
	}
	return Acted{out, *answer.Receipt}, nil
}

// text is the receipt in one line: when the act was done, and since when its effect holds if that
// is longer.
func (a Acted) text(p *printer.Page, verb string) {
	line := "done at " + p.TimeOfDay(a.Receipt.AskedAt)
	if since := a.Receipt.InForceSince; since != nil && a.Receipt.AskedAt.Sub(*since) > time.Minute { // two clocks
		line += ", in force since " + p.Clock(*since)
	}
	if noun := accountOf(verb, a.Result).noun; noun != "" {
		line += ", " + printer.Counted(a.Receipt.Concerned, noun)
	}
	p.Note("%s", line)
}
