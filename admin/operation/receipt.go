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

// Receipt confirms that an act is in force.
type Receipt struct {
	// AskedAt is the time at which belfry received the act, by the clock of this process.
	AskedAt time.Time `json:"asked_at"`
	// InForceSince is the time since which the requested state holds, by the database's clock. It is earlier
	// than AskedAt if the act changed nothing. Nil means unknown.
	InForceSince *time.Time `json:"in_force_since"`
	// Concerned is the number of objects of the act: jobs, messages or rows. For a halt and its end it is the
	// number of stopped jobs.
	Concerned int64 `json:"concerned"`
}

// Acted is what Run returns for an act: the result and the receipt. Its JSON is the JSON of the result with
// one more field, the receipt.
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

// plainJSON encodes without escaping HTML. Callers may escape it further.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// Affected describes the objects of an act, for its receipt.
type Affected struct {
	N       int64
	Noun    string     // of the objects that N counts; empty if the result shows one object
	Since   *time.Time // since when the result has been in force; nil if Event decides
	Event   EventKind  // the newest event of this kind led to the result; the zero value means that it is in force from now on
	Halted  bool       // N is the number of jobs that the newest halt stopped
	Plan    *Plan      // the result is this plan; nothing was changed
	Nothing bool       // nothing was changed for another reason
}

// EventKind selects events of one object by kind. Lifted restricts them to events that set this field to
// null.
type EventKind struct{ Subject, Name, Kind, Lifted string }

// pausable is a result that shows an object which can be paused and resumed.
type pausable interface {
	PausedSince() (since *time.Time, subject, name string)
}

// AffectedBy returns the objects of an act. A result can describe them in a method Affected. A pausable
// result has been in force since its pause or its newest resumption. Any other result is one object, and in
// force from now on.
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

// receiptLimit bounds the reads for a receipt. The act is already done.
const receiptLimit = 2 * time.Second

// receipted adds the receipt to the result of an act.
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

// newest returns the time of the newest event of a kind, and its number of jobs. Nil means that no such event
// exists since the object was created, or that the database did not answer.
func newest(ctx context.Context, env *Env, e EventKind) (at *time.Time, jobs int64) {
	err := Reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, queries.eventNewest,
			pgx.StrictNamedArgs{"subject": e.Subject, "name": e.Name, "kind": e.Kind, "lifted": e.Lifted}).Scan(&at, &jobs)
	})
	if err != nil || at == nil {
		return nil, 0
	}
	utc := at.UTC()
	return &utc, jobs
}

// withReceipt adds the receipt to a parsed result. A plan has none.
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

// text renders the receipt in one line: the time of the act, and since when its effect holds if that is
// earlier.
func (a Acted) text(p *text.Doc, verb string) {
	line := text.Sprintf("done at %s", text.TimeOfDay(a.Receipt.AskedAt))
	if since := a.Receipt.InForceSince; since != nil && a.Receipt.AskedAt.Sub(*since) > time.Minute { // two clocks are compared
		line = append(line, text.Sprintf(", in force since %s", *since)...)
	}
	if noun := AffectedBy(verb, a.Result).Noun; noun != "" {
		line = append(line, text.Sprintf(", %s", text.Counted(a.Receipt.Concerned, noun))...)
	}
	p.Note("%s", line)
}
