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

// mostKeys is the maximum size of the keys in a request to a server, as JSON: a little less than the
// maximum size of a request.
const mostKeys = 1_000_000

// memberKeys are the keys of channels, one per line. With a connection to the database the file is
// streamed into it and may have any size. A server receives the keys in the request.
type memberKeys struct{ lines *keyLines }

// keyLines are lines, or a reader of them.
type keyLines struct {
	text string
	from io.ReadCloser
}

// UnmarshalText sets the lines.
func (k *memberKeys) UnmarshalText(text []byte) error {
	k.lines = &keyLines{text: string(text)}
	return nil
}

// From sets a reader of lines, which are read when they are used.
func (k *memberKeys) From(r io.ReadCloser) { k.lines = &keyLines{from: r} }

// MarshalJSON reads all lines. It returns an error if they are too long for a request.
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
		err = fmt.Errorf("the keys have more than %s bytes, with a line end counted as two, which is the maximum of a server; "+
			"split the file, or connect to the database", text.Grouped(mostKeys))
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

// membersInput is the input of the operations that change the members of a segment.
type membersInput struct {
	segmentRef
	Keys memberKeys `arg:"FILE" name:"keys" file:"true" is:"keys of channels, one to a line"`
	By   string     `flag:"by" label:"KEY" choices:"external_id,id" default:"external_id" help:"type of the keys: external_id or id (default external_id)"`
	operation.PlanFlags
	operation.Act
}

// SegmentMembers is a change of the members of a segment.
type SegmentMembers struct {
	Plan *operation.Plan `json:"plan,omitempty"` // if set, nothing was changed
	channels.SegmentChange
}

// Affected returns the number of members added and removed.
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
		{"set", "Replace the members of a segment by the channels in FILE", (*channels.Store).SetSegment},
		{"add", "Add the channels in FILE to a segment", (*channels.Store).AddToSegment},
		{"remove", "Remove the channels in FILE from a segment", (*channels.Store).RemoveFromSegment},
	} {
		list = append(list, operation.Define(operation.Operation{
			Name: "channels segment " + act.verb, Short: act.short, Role: operation.Operator, Changes: true, Deadline: -1,
			Events: "the segment's events",
			Long: act.short + `.

FILE has one key per line; - is standard input. Keys without a channel are counted and
skipped. The change is atomic. A server accepts up to 1,000,000 bytes of keys, with a line
end counted as two. With a connection to the database a file may have any size.`,
			Example: "  belfry channels segment " + act.verb + " beta users.txt\n  psql -Atc 'SELECT …' | belfry channels segment " +
				act.verb + " beta - --by id",
		}, act.run, membersText))
	}
	return list
}

// run changes the members. A dry run counts the changes and rolls them back.
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
	p.Line("%s given: %s added, %s removed", text.Counted(out.Given, "key"), text.Count(out.Added), text.Count(out.Removed))
	if out.Unknown > 0 {
		p.Note("%s without a channel skipped, such as %s", text.Counted(out.Unknown, "key"), strings.Join(out.UnknownSample, ", "))
	}
}
