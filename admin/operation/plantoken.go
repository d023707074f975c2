package operation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/text"
)

// PlanFlags are the parameters of an act that has a plan.
type PlanFlags struct {
	DryRun bool       `flag:"dry-run" help:"only show the plan of the act, with its token"`
	Plan   *PlanToken `flag:"plan" label:"TOKEN" help:"execute exactly the plan with this token from --dry-run, or fail"`
}

// PlanToken identifies a plan: the request, the time, the count, and the version of an act on one object. An
// act with the token does exactly what the plan shows, or fails: it skips objects that are newer than the
// plan, and another count or version is an error. The token is neither a secret nor a proof: a caller with
// the permission for the act can create one.
type PlanToken struct {
	AsOf    time.Time
	Count   int64
	Version int64 // of the one object; 0 if the plan has none
	request [8]byte
	content [8]byte // from Plan.Content; zero without one
}

// planForm is the first byte of a token.
const planForm = 1

// MarshalText encodes the token in URL-safe base64.
func (t PlanToken) MarshalText() ([]byte, error) {
	b := []byte{planForm}
	for _, n := range []int64{t.AsOf.UnixMicro(), t.Count, t.Version} {
		b = binary.AppendVarint(b, n)
	}
	return base64.RawURLEncoding.AppendEncode(nil, slices.Concat(b, t.request[:], t.content[:])), nil
}

// UnmarshalText decodes a token.
func (t *PlanToken) UnmarshalText(text []byte) error {
	bad := &NotAllowedError{"the token that --dry-run shows"}
	b, err := base64.RawURLEncoding.AppendDecode(nil, text)
	if err != nil || len(b) == 0 || b[0] != planForm {
		return bad
	}
	r := bytes.NewReader(b[1:])
	var numbers [3]int64
	for i := range numbers {
		if numbers[i], err = binary.ReadVarint(r); err != nil {
			return bad
		}
	}
	if r.Len() != len(t.request)+len(t.content) {
		return bad
	}
	*t = PlanToken{AsOf: time.UnixMicro(numbers[0]).UTC(), Count: numbers[1], Version: numbers[2]}
	_, _ = r.Read(t.request[:]) // the length was checked
	_, _ = r.Read(t.content[:])
	return nil
}

// tokenOf returns the token of a plan that was made for an input.
func tokenOf(o Operation, in any, p *Plan) (t PlanToken, err error) {
	t = PlanToken{AsOf: p.AsOf, Count: p.Count}
	copy(t.content[:], p.Content)
	if p.Version != nil {
		t.Version = *p.Version
	}
	t.request, err = o.requestHash(in)
	return t, err
}

// sign sets the token of the plan in a result.
func (o Operation) sign(in, out any) error {
	p := AffectedBy(o.Verb(), out).Plan
	if p == nil {
		return nil
	}
	token, err := tokenOf(o, in, p)
	if err != nil {
		return err
	}
	text, err := token.MarshalText()
	p.Token = string(text)
	return err
}

// requestHash is a hash of the parameters that an act and its plan have in common.
func (o Operation) requestHash(in any) (hash [8]byte, err error) {
	h := sha256.New()
	h.Write([]byte(o.Name))
	for _, p := range o.params {
		if slices.Contains([]string{"dry_run", "plan", "reason", "actor", "if_version"}, p.Name) || p.Reads(in) {
			continue
		}
		raw, err := p.JSON(in, o)
		if err != nil {
			return hash, err
		}
		if raw != nil {
			h.Write([]byte("\n" + p.Name + " "))
			h.Write(raw)
		}
	}
	return [8]byte(h.Sum(nil)), nil
}

// withPlan is an input that embeds PlanFlags.
type withPlan interface {
	Plans() bool
	token() *PlanToken
}

// Plans reports whether the input requests a plan.
func (c PlanFlags) Plans() bool       { return c.DryRun }
func (c PlanFlags) token() *PlanToken { return c.Plan }

// Plans reports whether an input only requests the plan of an act. Nothing is changed then.
func Plans(in any) bool {
	plan, is := in.(interface{ Plans() bool })
	return is && plan.Plans()
}

// checkPlan rejects the token of another request.
func (o Operation) checkPlan(in any) error {
	c, is := in.(withPlan)
	if !is || c.token() == nil {
		return nil
	}
	hash, err := o.requestHash(in)
	switch {
	case err != nil:
		return err
	case c.Plans():
		return Invalid("plan", "excludes dry_run; give one of the two")
	case hash != c.token().request:
		return Invalid("plan", "is the token of another request; repeat --dry-run, and give the same parameters")
	}
	return nil
}

// Counts reports whether the effect of the act must be counted first.
func (c PlanFlags) Counts() bool { return c.DryRun || c.Plan != nil }

// Expected returns the count of the plan, or nil without one.
func (c PlanFlags) Expected() *int64 {
	if c.Plan == nil {
		return nil
	}
	return &c.Plan.Count
}

// Moment returns the time after which created objects are skipped: the plan's time, or now by the database's
// clock.
func (c PlanFlags) Moment(ctx context.Context, env *Env) (time.Time, error) {
	now, err := env.Jobs.Now(ctx)
	switch {
	case err != nil || c.Plan == nil:
		return now, err
	case c.Plan.AsOf.After(now):
		return now, Invalid("plan", "is of a later time than the database's clock; repeat --dry-run")
	}
	return c.Plan.AsOf, nil
}

// Agrees returns an error if the count differs from the plan's.
func (c PlanFlags) Agrees(p *Plan, noun, done string) error {
	switch {
	case c.Plan == nil:
		return nil
	case p.Content != strings.TrimRight(string(c.Plan.content[:]), "\x00"):
		return Conflict("the plan is for another file; nothing was changed, repeat --dry-run")
	case p.Count == c.Plan.Count:
		return nil
	}
	return Unexpected(p.Count, c.Plan.Count, noun, done, p.AsOf)
}

// Unexpected returns the error of a count that differs from the plan's.
func Unexpected(would, expected int64, noun, done string, asOf time.Time) error {
	return Conflict("the plan is out of date: %s would be %s as of %s, not %s; nothing was changed, repeat --dry-run",
		text.Counted(would, noun), done, asOf.Format(time.RFC3339Nano), text.Grouped(expected))
}

// Bound reports whether an act must match a plan.
func (c PlanFlags) Bound() bool { return c.Plan != nil }
