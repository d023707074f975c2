package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

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
	// database did not say.
	InForceSince *time.Time `json:"in_force_since"`
	// Concerned is how many things the act was about and found: jobs, messages, rows.
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
	n     int64
	noun  string     // of what n counts; "": it is about the one thing that the result shows
	since *time.Time // nil: from now on
	none  bool       // nothing was done: it was a plan
}

// accountOf reads the result of an act. What it does not know is about one thing, which holds
// from now on. What was so before, as a lane that is paused already, has been since then.
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
	return a
}

// receiptLimit bounds the question for the database's clock: the act is done.
const receiptLimit = 2 * time.Second

// receipted adds the receipt to what came of an act.
func receipted(ctx context.Context, env *Env, o Operation, asked time.Time, result any) any {
	a := accountOf(o.Verb(), result)
	if a.none {
		return result
	}
	r := Receipt{AskedAt: asked.UTC(), InForceSince: a.since, Concerned: a.n}
	if a.since == nil && env.Jobs != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), receiptLimit)
		defer cancel()
		if now, err := env.Jobs.Now(ctx); err == nil {
			r.InForceSince = &now
		}
	}
	return Acted{result, r}
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

// text is the receipt in one line.
func (a Acted) text(p *printer.Page, verb string) {
	line := "asked " + p.Clock(a.Receipt.AskedAt)
	if a.Receipt.InForceSince != nil {
		line += ", in force since " + p.Clock(*a.Receipt.InForceSince)
	}
	if noun := accountOf(verb, a.Result).noun; noun != "" {
		line += ", " + printer.Counted(a.Receipt.Concerned, noun)
	}
	p.Note("%s", line)
}
