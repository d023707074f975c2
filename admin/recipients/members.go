package recipients

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
)

// mostKeys is how many bytes of keys in JSON are sent to a server at most: what it takes of a
// request, but for the rest of one.
const mostKeys = 1_000_000

// memberKeys are the keys of channels, one to a line. On a database at hand the file is read as
// it is copied into the database, whatever its size; a server gets them in the request.
type memberKeys struct{ lines *keyLines }

// keyLines are lines, or what they are still to be read from.
type keyLines struct {
	text string
	from io.ReadCloser
}

// UnmarshalText takes lines.
func (k *memberKeys) UnmarshalText(text []byte) error {
	k.lines = &keyLines{text: string(text)}
	return nil
}

// From has lines read as they are used.
func (k *memberKeys) From(r io.ReadCloser) { k.lines = &keyLines{from: r} }

// MarshalJSON reads all lines, if a request may have so many.
func (k memberKeys) MarshalJSON() ([]byte, error) {
	if k.lines == nil {
		return []byte("null"), nil
	}
	if from := k.lines.from; from != nil {
		text, err := io.ReadAll(io.LimitReader(from, mostKeys+1))
		if err != nil {
			return nil, err
		}
		k.lines.from, k.lines.text = nil, string(text)
		if err := from.Close(); err != nil {
			return nil, err
		}
	}
	raw, err := json.Marshal(k.lines.text)
	if err == nil && len(raw) > mostKeys {
		err = fmt.Errorf("there are more than %s bytes, a line end counted as two, and a server takes no more at once; add or remove parts of the file, or use the database itself", text.Grouped(mostKeys))
	}
	return raw, err
}

// reader reads the lines, once.
func (k memberKeys) reader() io.ReadCloser {
	if k.lines.from != nil {
		return k.lines.from
	}
	return io.NopCloser(strings.NewReader(k.lines.text))
}

// membersInput is the input of what changes the members of a segment.
type membersInput struct {
	segmentRef
	Keys memberKeys `arg:"FILE" name:"keys" file:"true" is:"keys of channels, one to a line"`
	By   string     `flag:"by" label:"KEY" choices:"external_id,id" default:"external_id" help:"what the lines are: external_id or id (default external_id)"`
	operation.PlanFlags
	operation.Act
}

// SegmentMembers is what became of the members of a segment.
type SegmentMembers struct {
	Plan *operation.Plan `json:"plan,omitempty"` // then nothing was changed
	channels.SegmentChange
}

// Affected returns what a receipt counts.
func (m *SegmentMembers) Affected(string) operation.Affected {
	return operation.Affected{N: m.Added + m.Removed, Noun: "member", Plan: m.Plan}
}

// membersAct is a change of a segment's members from a list.
type membersAct struct {
	verb, short string
	do          func(*channels.Store, context.Context, channels.Beginner, channels.SegmentEdit, io.Reader) (channels.SegmentChange, error)
}

func memberOperations() (list []operation.Operation) {
	for _, act := range []membersAct{
		{"set", "Make the channels in FILE the members of a segment, and nobody else", (*channels.Store).SetSegment},
		{"add", "Add the channels in FILE to a segment", (*channels.Store).AddToSegment},
		{"remove", "Remove the channels in FILE from a segment", (*channels.Store).RemoveFromSegment},
	} {
		list = append(list, operation.Define(operation.Operation{
			Name: "channels segment " + act.verb, Short: act.short, Role: operation.Operator, Changes: true, Deadline: -1, Events: "the segment's events",
			Long: act.short + `.

FILE has one key to a line, and may be - for standard input. Keys without a channel are
counted and left out. All of it is done, or nothing. A server takes up to 1,000,000 bytes
of keys at once, a line end counted as two; on the database itself a file has any size.`,
			Example: "  belfry channels segment " + act.verb + " beta users.txt\n  psql -Atc 'SELECT …' | belfry channels segment " + act.verb + " beta - --by id",
		}, act.run, membersText))
	}
	return list
}

// run changes the members, or takes it back once it is known what would be changed.
func (act membersAct) run(ctx context.Context, env *operation.Env, in membersInput) (*SegmentMembers, error) {
	var asOf time.Time
	if in.Counts() {
		var err error
		if asOf, err = env.Jobs.Now(ctx); err != nil {
			return nil, err
		}
	}
	out := new(SegmentMembers)
	keys := in.Keys.reader()
	defer keys.Close() //nolint:errcheck // it was only read
	content := sha256.New()
	change, err := act.do(env.Channels, ctx, env.DB, channels.SegmentEdit{
		Segment: in.Name, Key: channels.MemberKey(in.By), By: in.ChannelsBy(env), Agree: func(c channels.SegmentChange) error {
			plan := membersPlan(in.Name, c, asOf)
			plan.Content = hex.EncodeToString(content.Sum(nil)[:4])
			if err := in.Agrees(plan, "member", "changed"); err != nil || !in.DryRun {
				return err
			}
			out.Plan = plan
			return operation.ErrPlanned
		},
	}, io.TeeReader(keys, content))
	out.SegmentChange = change
	if out.Plan != nil {
		return out, nil
	}
	if err != nil {
		return nil, segmentProblem(in.Name, err)
	}
	return out, nil
}

func membersPlan(segment string, c channels.SegmentChange, asOf time.Time) *operation.Plan {
	p := &operation.Plan{Selection: "segment " + segment, AsOf: asOf, Count: c.Added + c.Removed, Outcomes: []operation.Outcome{}}
	for _, o := range []operation.Outcome{
		{Of: "channels", Outcome: "added", Count: c.Added}, {Of: "channels", Outcome: "removed", Count: c.Removed},
		{Of: "keys", Outcome: "left", Count: c.Unknown, Detail: "they have no channel"},
	} {
		if o.Count > 0 {
			p.Outcomes = append(p.Outcomes, o)
		}
	}
	return p
}

func membersText(p *text.Doc, _ membersInput, out *SegmentMembers) {
	if out.Plan != nil {
		out.Plan.Text(p, "member", "changed")
		return
	}
	p.Printf("%s given: %s added, %s removed\n", text.Counted(out.Given, "key"), text.Grouped(out.Added), text.Grouped(out.Removed))
	if out.Unknown > 0 {
		p.Note("%s without a channel left out, as %s", text.Counted(out.Unknown, "key"), strings.Join(out.UnknownSample, ", "))
	}
}
