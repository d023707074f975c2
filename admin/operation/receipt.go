package operation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/text"
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

// Affected describes what an act affected, for its receipt.
type Affected struct {
	N       int64
	Noun    string     // of the objects that n counts; "": the result shows one object
	Since   *time.Time // since when the result has been in force; nil: event decides
	Event   EventKind  // the newest event of this kind made the result; zero: it is in force from now on
	Halted  bool       // n is the number of jobs that the newest halt stopped
	Plan    *Plan      // the result is this plan, and nothing was changed
	Nothing bool       // nothing was changed for another reason
}

// EventKind is a kind of events of one object; with lifted, those that set this member to null.
type EventKind struct{ Subject, Name, Kind, Lifted string }

// pausable is a result that shows an object which can be paused and resumed.
type pausable interface {
	PausedSince() (since *time.Time, subject, name string)
}

// AffectedBy returns what an act affected. A result describes that itself in a method affected; a
// pausable one has been in force since its pause, or since its newest resumption. Any other result
// is one object, and in force from now on.
func AffectedBy(verb string, result any) Affected {
	switch r := result.(type) {
	case interface{ Affected(verb string) Affected }:
		return r.Affected(verb)
	case pausable:
		since, subject, name := r.PausedSince()
		switch verb {
		case "pause":
			return Affected{N: 1, Since: since}
		case "resume":
			return Affected{N: 1, Event: EventKind{subject, name, "resumed", ""}}
		}
	}
	return Affected{N: 1}
}

// receiptLimit bounds the questions for since when and how many: the act is done.
const receiptLimit = 2 * time.Second

// receipted adds the receipt to what came of an act.
func receipted(ctx context.Context, env *Env, o Operation, asked time.Time, result any) any {
	a := AffectedBy(o.Verb(), result)
	if a.Plan != nil || a.Nothing {
		return result
	}
	r := Receipt{AskedAt: asked.UTC(), InForceSince: a.Since, Concerned: a.N}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), receiptLimit)
	defer cancel()
	switch {
	case a.Since != nil || env.Jobs == nil:
	case a.Event != EventKind{}:
		r.InForceSince, _ = newest(ctx, env, a.Event)
	default:
		if now, err := env.Jobs.Now(ctx); err == nil {
			r.InForceSince = &now
		}
	}
	if a.Halted {
		_, r.Concerned = newest(ctx, env, EventKind{SubjectInstallation, "", "halted", ""})
	}
	return Acted{result, r}
}

// newest is when the newest event of a kind was, and of how many jobs; nil: there is none since the
// thing was made, or the database does not say.
func newest(ctx context.Context, env *Env, e EventKind) (at *time.Time, jobs int64) {
	err := Reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, queries.eventNewest, pgx.StrictNamedArgs{"subject": e.Subject, "name": e.Name, "kind": e.Kind, "lifted": e.Lifted}).Scan(&at, &jobs)
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
func (a Acted) text(p *text.Doc, verb string) {
	line := text.Sprintf("done at %s", text.TimeOfDay(a.Receipt.AskedAt))
	if since := a.Receipt.InForceSince; since != nil && a.Receipt.AskedAt.Sub(*since) > time.Minute { // two clocks
		line = append(line, text.Sprintf(", in force since %s", *since)...)
	}
	if noun := AffectedBy(verb, a.Result).Noun; noun != "" {
		line = append(line, text.Sprintf(", %s", text.Counted(a.Receipt.Concerned, noun))...)
	}
	p.Note("%s", line)
}
