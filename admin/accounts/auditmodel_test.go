package accounts_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// person is one channel of the model.
type person struct {
	id       int64
	exists   bool
	active   bool
	platform string
	near     bool // within the audience's circle
	member   bool // of the audience's segment
	listed   bool // by the audience's list
	made     bool // after the start
	changed  bool // after the start
	state    outbox.Reason
	why      outbox.Reason // of a message
	skipped  bool
}

func (p person) in(a channels.Audience) bool {
	on := len(a.Platforms) == 0 || slices.Contains(a.Platforms, p.platform)
	return on && (a.Kind != channels.KindRadius || p.near) && (a.Kind != channels.KindSegment || p.member) &&
		(a.Kind != channels.KindChannels || p.listed)
}

// expected returns the reason by its definition.
func (p person) expected(a channels.Audience, cursor, bound int64) (e accounts.Entry, some bool) {
	e = accounts.Entry{ChannelID: p.id}
	switch {
	case p.state != "":
		e.Reason, e.Why, e.ChannelDeleted, e.LeftSince = p.state, p.why, !p.exists, p.exists && !(p.active && p.in(a))
	case p.skipped:
		e.Reason, e.ChannelDeleted, e.Error = outbox.ReasonSkipped, !p.exists, "bad"
	case !p.exists:
		return e, false
	case !p.in(a):
		e.Reason = outbox.ReasonOutOfAudience
	case !p.active:
		e.Reason = outbox.ReasonInactive
	case p.id > bound || p.id <= cursor && p.made:
		e.Reason = outbox.ReasonArrivedLater
	case p.id > cursor:
		e.Reason = outbox.ReasonNotReached
	case p.changed || a.Kind == channels.KindSegment:
		e.Reason = outbox.ReasonJoinedSince
	default:
		e.Reason = outbox.ReasonMissing
	}
	return e, true
}

// world is one random history of a job and its channels.
type world struct {
	people        []person
	audience      channels.Audience
	cursor, bound int64
	kind          string
}

func drawWorld(t *rapid.T) *world {
	w := &world{kind: rapid.SampledFrom([]string{outbox.TypeInbox, outbox.TypePush}).Draw(t, "type")}
	var listed []int64
	for i := range rapid.IntRange(1, 40).Draw(t, "channels") {
		p := person{id: int64(i+1) * 3, exists: true, active: rapid.IntRange(0, 9).Draw(t, "active") > 0}
		p.platform = rapid.SampledFrom([]string{"ios", "android", "web"}).Draw(t, "platform")
		p.near, p.member, p.listed = rapid.Bool().Draw(t, "near"), rapid.Bool().Draw(t, "member"), rapid.Bool().Draw(t, "listed")
		if p.listed {
			listed = append(listed, p.id)
		}
		w.people = append(w.people, p)
	}
	w.bound = w.people[len(w.people)-1].id
	w.cursor = min(w.bound, 3*int64(rapid.IntRange(1, len(w.people)+5).Draw(t, "cursor")))
	w.audience = rapid.SampledFrom([]channels.Audience{
		channels.Everyone(), channels.OnPlatforms("ios", "web"), channels.Within(37.5, 127, 5000), channels.InSegment("s"),
		channels.WithIDs(append(listed, 100_000)...), {Kind: channels.KindSegment, Segment: "s", Platforms: []string{"ios"}},
	}).Draw(t, "audience")
	return w
}

// walk adds a row or a skip for each channel of the audience up to the cursor.
func (w *world) walk(t *rapid.T) {
	for i := range w.people {
		p := &w.people[i]
		if p.id > w.cursor || !p.active || !p.in(w.audience) {
			continue
		}
		if p.skipped = rapid.IntRange(0, 9).Draw(t, "skip") == 0; p.skipped {
			continue
		}
		p.state = rapid.SampledFrom([]outbox.Reason{outbox.ReasonUnread, outbox.ReasonRead, outbox.ReasonWithdrawn}).Draw(t, "state")
		if w.kind == outbox.TypePush {
			p.state = rapid.SampledFrom([]outbox.Reason{outbox.ReasonHeld, outbox.ReasonSending, outbox.ReasonSent, outbox.ReasonDead, outbox.ReasonCancelled}).Draw(t, "state")
			if list := outbox.Whys(p.state); len(list) > 0 {
				p.why = rapid.SampledFrom(list).Draw(t, "why")
			}
			if (p.state == outbox.ReasonHeld || p.state == outbox.ReasonSending) && rapid.Bool().Draw(t, "none") {
				p.why = ""
			}
		}
	}
}

// goOn changes the world after the walk.
func (w *world) goOn(t *rapid.T) {
	for i := range w.people {
		p := &w.people[i]
		switch rapid.IntRange(0, 11).Draw(t, "change") {
		case 0:
			p.exists = false
		case 1:
			p.active, p.changed = !p.active, true
		case 2:
			p.platform, p.changed = "android", true
		case 3:
			p.near, p.changed = !p.near, true
		case 4:
			p.member = !p.member
		}
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "new") {
		id := w.bound + 3*int64(i+1)
		if rapid.Bool().Draw(t, "below") {
			id = int64(3*i + 2)
		}
		w.people = append(w.people, person{id: id, exists: true, active: true, platform: "ios", near: true, member: true, made: true})
	}
	slices.SortFunc(w.people, func(a, b person) int { return int(a.id - b.id) })
}

// load writes the world to the database and returns the job.
func (w *world) load(t require.TestingT, b *bundle) int64 {
	id := b.Rest(t, w.kind, 0, job.Aborted)
	var all pgx.Batch
	for _, table := range []string{"channels", "segment_members", "notifications", "message_rows"} {
		all.Queue(`DELETE FROM belfry.` + table)
	}
	var rows, skips int64
	status := map[string]string{"held": "PENDING", "sending": "PROCESSING", "sent": "SENT", "dead": "DEAD", "cancelled": "CANCELLED"}
	for _, p := range w.people {
		if p.exists {
			all.Queue(`INSERT INTO belfry.channels (id, external_id, platform, active, location, created_at, updated_at)
				SELECT $1, $2, $3, $4, CASE WHEN $5 THEN point(127, 37.51) ELSE point(-3, 51) END,
				       now() - CASE WHEN $6 THEN interval '0' ELSE interval '1 day' END, now() - CASE WHEN $7 THEN interval '0' ELSE interval '1 day' END`,
				p.id, fmt.Sprint("u-", p.id), p.platform, p.active, p.near, p.made, p.changed || p.made)
		}
		if p.member {
			all.Queue(`INSERT INTO belfry.segment_members VALUES ('s', $1)`, p.id)
		}
		switch {
		case p.skipped:
			skips++
			all.Queue(`INSERT INTO belfry.job_skips (job_id, key, after, error) VALUES ($1, $2, '', 'bad')`, id, strconv.FormatInt(p.id, 10))
		case p.state == "":
		case w.kind == outbox.TypePush:
			rows++
			all.Queue(`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, lease_id, reason, receipt)
				SELECT $1, $2, now(), $3, CASE WHEN $3 = 'PROCESSING' THEN 1 END, CASE WHEN $3 <> 'PROCESSING' THEN nullif($4, '') ELSE 'retry' END, CASE WHEN $4 = 'receipt' THEN 'r-1' END`,
				id, p.id, status[string(p.state)], string(p.why))
		default:
			rows++
			all.Queue(`INSERT INTO belfry.notifications (channel_id, arrival, read_at, withdrawn_at)
				VALUES ($1, (SELECT arrival FROM belfry.jobs WHERE id = $2), CASE WHEN $3 = 'read' THEN now() END, CASE WHEN $3 = 'withdrawn' THEN now() END)`, p.id, id, string(p.state))
		}
		all.Queue(`INSERT INTO belfry.notifications (channel_id, arrival) VALUES ($1, 1000000)`, p.id) // of another job
	}
	all.Queue(`UPDATE belfry.jobs SET audience = $2, bound = $3, "cursor" = $4, rows_written = $5, skipped = $6, channels_matched = $7, channels_read = $7 WHERE id = $1`,
		id, w.audience, strconv.FormatInt(w.bound, 10), strconv.FormatInt(w.cursor, 10), rows, skips, rows+skips)
	require.NoError(t, b.DB.Pool.SendBatch(context.Background(), &all).Close())
	return id
}

// Through random histories the audit agrees with a model that considers one channel at a time.
func TestAudit_AgreesWithANaiveModel(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.Exec(t, `INSERT INTO belfry.segments (name) VALUES ('s')`)
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.walk(t)
		w.goOn(t)
		id := w.load(t, b)
		var want []accounts.Entry
		whys := make(delivery.Tally)
		for _, p := range w.people {
			if e, some := p.expected(w.audience, w.cursor, w.bound); some {
				want = append(want, e)
				if e.Why != "" {
					if whys[e.Reason] == nil {
						whys[e.Reason] = make(map[outbox.Reason]int64)
					}
					whys[e.Reason][e.Why]++
				}
			}
		}
		report, list := b.audit(t, id)
		require.ElementsMatch(t, want, list)
		require.Equal(t, whys, report.Why)
		require.Equal(t, report.Counts[outbox.ReasonMissing] == 0, report.Agree, "%v", report.Disagreements)
	})
}
