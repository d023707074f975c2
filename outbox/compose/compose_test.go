package compose_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/sender"
)

// A message that may be sent comes whole.
func TestCompose_MakesWholeDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.job(t, pgx.NamedArgs{
		"title": `Hello {{attributes.name | default "friend"}}`, "body": "{{external_id}} {{platform}}", "route": []string{"push", "sms"}, "data": `{"a": 1}`,
		"variants": `{"ko": {"title": "{{attributes.name}}님"}}`,
	})
	installation := one[uuid.UUID](t, b, `SELECT id FROM belfry.installation`)
	created := one[time.Time](t, b, `SELECT created_at FROM belfry.jobs WHERE id = $1`, id)
	list := b.compose(t, id, 1, 2)
	want := outbox.Composed{
		Claimed: list[0].Claimed, Action: outbox.ActionSend, Category: "operator_notice", Route: []string{"push", "sms"},
		Delivery: sender.Delivery{
			Key: compose.Key(installation, id, created, 1, "push"), JobID: id, ChannelID: 1, ExternalID: "u-1", Category: "operator_notice", Medium: "push",
			Platform: "ios", Locale: "ko", Address: "token-1", Title: "Mina님", Body: "u-1 ios", Data: []byte(`{"a": 1}`), Attempt: 1,
		},
	}
	require.Equal(t, len("Mina님")+len("u-1 ios"), list[0].Own)
	require.Equal(t, len("{{attributes.name}}님")+len("{{external_id}} {{platform}}")+len(`{"a": 1}`), list[0].Shared.Bytes)
	list[0].Own, list[0].Shared = 0, nil
	require.Equal(t, want, list[0])
	require.EqualValues(t, 4, b.composer.Transactions(), "content, channels, opt-outs, invalid addresses")
	require.Equal(t, outbox.ActionSend, list[1].Action)
	require.Equal(t, []outbox.Attempt{{Step: 0, Medium: "push", Outcome: outbox.OutcomeRefused, Reason: outbox.ReasonNoAddress}}, list[1].Record)
	require.Equal(t, 1, list[1].Step)
	require.Equal(t, sender.Delivery{
		Key: compose.Key(installation, id, created, 2, "sms"), JobID: id, ChannelID: 2, ExternalID: "u-2", Category: "operator_notice", Medium: "sms",
		Platform: "android", Address: "+822", Title: "Hello friend", Body: "u-2 android", Data: []byte(`{"a": 1}`), Attempt: 1,
	}, list[1].Delivery)

	b.exec(t, `UPDATE belfry.jobs SET title = 'corrected', variants = '{}' WHERE id = $1`, id)
	require.Equal(t, "corrected", b.compose(t, id, 1)[0].Delivery.Title, "what is not sent yet says what the job says now (ADR 0012)")
	empty, err := b.composer.Compose(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, empty)
}

// A text with a value has that of the channel. Without one nothing is sent. A test of the job has its values.
func TestCompose_RendersValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.job(t, pgx.NamedArgs{"title": "{{value.points}} points", "body": "", "route": []string{"push", "sms"}, "data": `{}`, "variants": `{}`})
	b.past(t, `INSERT INTO belfry.job_values VALUES ($1, 1, '{"points": 12}')`, id)
	list := b.compose(t, id, 1, 2)
	require.Equal(t, "12 points", list[0].Delivery.Title)
	require.Equal(t, outbox.ActionRefuse, list[1].Action)
	require.Equal(t, outbox.ReasonBadContent, list[1].Reason)
	test := one[int64](t, b, `INSERT INTO belfry.activities (channel_id, title, test_of) VALUES (1, '{{value.points}}', $1) RETURNING id`, id)
	require.Equal(t, "12", b.compose(t, test, 1)[0].Delivery.Title)
}

// Jobs and activities, known and gone, channels that are there and not, in one batch and
// in its order.
func TestCompose_TakesMixedBatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := b.job(t, pgx.NamedArgs{"title": "one"}), b.job(t, pgx.NamedArgs{"title": "two"})
	activity, gone := b.send(t, 1, "activity", "liked"), b.send(t, 1, "activity", "gone")
	dbtest.Past(t, b.db.Pool, fmt.Sprintf(`DELETE FROM belfry.activities WHERE id = %d`, gone)) // which activities_end rejects
	b.exec(t, `UPDATE belfry.channels SET active = false WHERE id = 2`)
	b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES ($1, 99, now())`, one)
	list := b.composed(t, b.claim(t, two, 1), b.claim(t, one, 99), b.claim(t, activity, 1), b.claim(t, one, 2), b.claim(t, gone, 1), b.claim(t, one, 1), b.claim(t, two, 3))
	type short struct {
		title  string
		action outbox.Action
		status outbox.Status
		reason outbox.Reason
	}
	var got []short
	for _, c := range list {
		got = append(got, short{c.Delivery.Title, c.Action, c.Status, c.Reason})
	}
	require.Equal(t, []short{
		{"two", outbox.ActionSend, "", ""},
		{"", outbox.ActionRefuse, outbox.Dead, outbox.ReasonNoAddress},
		{"liked", outbox.ActionSend, "", ""},
		{"", outbox.ActionRefuse, outbox.Cancelled, outbox.ReasonOptedOut},
		{"", outbox.ActionRefuse, outbox.Dead, outbox.ReasonBadContent},
		{"one", outbox.ActionSend, "", ""},
		{"", outbox.ActionRefuse, outbox.Dead, outbox.ReasonNoAddress},
	}, got)
	for _, c := range list {
		require.Empty(t, c.Record, "%s says it all", c.Reason)
	}
}

// Who has opted out of a category, a medium, both or everything gets nothing by it
// (invariant 1), and it is recorded.
func TestCompose_BypassesWhatIsNotWanted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refused := func(step int, medium string, reason outbox.Reason) outbox.Attempt {
		return outbox.Attempt{Step: step, Medium: medium, Outcome: outbox.OutcomeRefused, Reason: reason}
	}
	id := b.job(t, pgx.NamedArgs{"route": []string{"push", "sms", "email"}})
	for _, c := range []struct {
		category, medium string
		left             string
		record           []outbox.Attempt
	}{
		{"*", "push", "sms", []outbox.Attempt{refused(0, "push", outbox.ReasonOptedOut)}},
		{"operator_notice", "push", "sms", []outbox.Attempt{refused(0, "push", outbox.ReasonOptedOut)}},
		{"popular_content", "push", "push", nil},
		{"popular_content", "*", "push", nil},
		{"operator_notice", "sms", "push", nil},
		{"operator_notice", "*", "", nil},
		{"*", "*", "", nil},
	} {
		_, err := channels.OptOutChannel(t.Context(), b.db.Pool, channels.OptOut{ChannelID: 1, Category: c.category, Medium: c.medium})
		require.NoError(t, err)
		got := b.compose(t, id, 1)[0]
		require.Equal(t, c.left, got.Delivery.Medium, "%s by %s", c.category, c.medium)
		require.Equal(t, c.record, got.Record)
		if c.left == "" {
			require.Equal(t, []any{outbox.ActionRefuse, outbox.Cancelled, outbox.ReasonOptedOut}, []any{got.Action, got.Status, got.Reason})
		}
		require.Equal(t, "sms", b.compose(t, id, 2)[0].Delivery.Medium, "another channel")
		removed, err := channels.OptInChannel(t.Context(), b.db.Pool, 1, c.category, c.medium)
		require.NoError(t, err)
		require.Len(t, removed, 1)
	}
	b.exec(t, `SELECT belfry.opt_out(2, '*', 'sms')`)
	got := b.compose(t, id, 2)[0]
	require.Equal(t, []any{outbox.ActionRefuse, outbox.Cancelled, outbox.ReasonOptedOut}, []any{got.Action, got.Status, got.Reason}, "the opt-out is what leaves nothing")
	require.Equal(t, []outbox.Attempt{
		refused(0, "push", outbox.ReasonNoAddress), refused(1, "sms", outbox.ReasonOptedOut), refused(2, "email", outbox.ReasonNoAddress),
	}, got.Record, "the reasons differ")
}

// An address that a provider called invalid is not used again for that medium; a new one
// is, from the moment it is there (invariant 1).
func TestCompose_BypassesInvalidAddresses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.job(t, pgx.NamedArgs{"route": []string{"push", "webhook"}})
	address := b.compose(t, id, 1)[0].Delivery.Address
	invalid := func(channel int64, medium, address string) {
		b.exec(t, `INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256) VALUES ($1, $2, $3)`, channel, medium, outbox.AddressHash(address))
	}
	invalid(1, "sms", address)
	invalid(2, "push", address)
	invalid(1, "push", "another")
	require.Equal(t, "push", b.compose(t, id, 1)[0].Delivery.Medium, "of another medium, of another channel, another address")
	invalid(1, "push", address)
	got := b.compose(t, id, 1)[0]
	require.JSONEq(t, `{"url": "https://example.org"}`, got.Delivery.Address, "an object's JSON")
	require.Equal(t, []outbox.Attempt{{Medium: "push", Outcome: outbox.OutcomeRefused, Reason: outbox.ReasonInvalidAddress}}, got.Record)
	invalid(1, "webhook", got.Delivery.Address)
	got = b.compose(t, id, 1)[0]
	require.Equal(t, []any{outbox.ActionRefuse, outbox.Dead, outbox.ReasonInvalidAddress}, []any{got.Action, got.Status, got.Reason})
	require.Empty(t, got.Record)
	b.exec(t, `UPDATE belfry.channels SET addresses = '{"push": "token-2"}' WHERE id = 1`)
	require.Equal(t, "token-2", b.compose(t, id, 1)[0].Delivery.Address)
}

// A medium whose senders have one target for everybody reaches channels without an
// address, unless they do not want it.
func TestCompose_NeedsNoAddressWhereTheSenderHasATarget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	config := compose.DefaultConfig()
	config.NoAddress = []string{"webhook"}
	b.composer = b.newComposer(t, config, 0)
	id := b.job(t, pgx.NamedArgs{"route": []string{"webhook"}})
	b.exec(t, `SELECT belfry.opt_out(2, '*', 'webhook')`)
	got := b.compose(t, id, 1, 2, 3)
	require.JSONEq(t, `{"url": "https://example.org"}`, got[0].Delivery.Address)
	require.Equal(t, outbox.ReasonOptedOut, got[1].Reason)
	require.Equal(t, outbox.ActionSend, got[2].Action, "u-3 has no address")
	require.Empty(t, got[2].Delivery.Address)
	require.Equal(t, "webhook", got[2].Delivery.Medium)
}

// A route without a medium left says what the last real failure says, and never that an
// ambiguous one failed (invariant 4, I12).
func TestCompose_SaysWhyNoMediumIsLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.job(t, pgx.NamedArgs{"route": []string{"sms", "push"}}) // channel 2 has no address for push
	for _, c := range []struct {
		name      string
		at        outbox.Claimed
		outcomes  []string
		status    outbox.Status
		reason    outbox.Reason
		passed    int
		elsewhere func()
	}{
		{"never called", outbox.Claimed{Step: 0}, nil, "", "", 0, nil},
		{"refused permanently", outbox.Claimed{Step: 1}, []string{"permanent"}, outbox.Dead, outbox.ReasonPermanent, 1, nil},
		{"refused permanently at last", outbox.Claimed{Step: 1}, []string{"retryable", "permanent"}, outbox.Dead, outbox.ReasonPermanent, 1, nil},
		{"invalid", outbox.Claimed{Step: 1}, []string{"invalid_address"}, outbox.Dead, outbox.ReasonInvalidAddress, 1, nil},
		{"failed as often as it may", outbox.Claimed{Step: 1}, []string{"permanent", "retryable"}, outbox.Dead, outbox.ReasonExhausted, 1, nil},
		{"not recorded any more", outbox.Claimed{Step: 1}, nil, outbox.Dead, outbox.ReasonExhausted, 1, nil},
		{"may have been accepted", outbox.Claimed{Step: 1, Ambiguous: true}, []string{"unknown", "permanent"}, outbox.Dead, outbox.ReasonUnknown, 1, nil},
		{"a step that the route does not have", outbox.Claimed{Step: 2}, []string{"permanent"}, outbox.Dead, outbox.ReasonPermanent, 0, nil},
		{"the address went after a try", outbox.Claimed{Attempts: 1}, []string{"retryable"}, outbox.Dead, outbox.ReasonNoAddress, 0, func() {
			b.exec(t, `UPDATE belfry.channels SET addresses = '{}' WHERE id = 2`)
		}},
		{"the recipient opted out after a try", outbox.Claimed{Attempts: 1}, []string{"retryable"}, outbox.Cancelled, outbox.ReasonOptedOut, 0, func() {
			b.exec(t, `SELECT belfry.opt_out(2)`)
		}},
	} {
		b.exec(t, `DELETE FROM belfry.attempts`)
		b.exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) SELECT $1, 2, 0, n, 'sms', o FROM unnest($2::text[]) WITH ORDINALITY u (o, n)`, id, c.outcomes)
		b.exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) VALUES ($1, 2, 0, 0, 'sms', 'refused'), ($1, 1, 0, 1, 'sms', 'permanent')`, id)
		if c.elsewhere != nil {
			c.elsewhere()
		}
		m := b.claim(t, id, 2)
		m.Step, m.Attempts, m.Ambiguous = c.at.Step, c.at.Attempts, c.at.Ambiguous
		got := b.composed(t, m)[0]
		if c.status == "" {
			require.Equal(t, outbox.ActionSend, got.Action, c.name)
			continue
		}
		require.Equal(t, []any{outbox.ActionRefuse, c.status, c.reason}, []any{got.Action, got.Status, got.Reason}, c.name)
		require.Len(t, got.Record, c.passed, c.name)
		require.Equal(t, m.Step, got.Step, c.name)
	}
}

// A message that goes on counts its attempts, and from the beginning by the next medium.
func TestCompose_CountsAttemptsOfTheStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.job(t, pgx.NamedArgs{"route": []string{"push", "sms"}})
	m := b.claim(t, id, 1)
	m.Attempts = 2
	got := b.composed(t, m)[0]
	require.Equal(t, []int{0, 2, 3}, []int{got.Step, got.Attempts, got.Delivery.Attempt})
	first := got.Delivery.Key
	b.exec(t, `SELECT belfry.opt_out(1, '*', 'push')`)
	got = b.composed(t, m)[0]
	require.Equal(t, []int{1, 0, 1}, []int{got.Step, got.Attempts, got.Delivery.Attempt})
	require.NotEqual(t, first, got.Delivery.Key)
}

// Within quiet hours nothing is sent, in the channel's own time zone (invariant 2): it is
// deferred to their end and a little more.
func TestCompose_WaitsForTheEndOfQuietHours(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.composer = b.newComposer(t, compose.Config{TimeZone: "UTC", Jitter: time.Minute}, 0.5)
	id := b.job(t, pgx.NamedArgs{"route": []string{"push", "sms"}})
	b.exec(t, `UPDATE belfry.channels SET time_zone = 'Nowhere/Land' WHERE id = 2`)
	around := func(zone string) { // from two hours ago to in two hours there
		b.exec(t, `UPDATE belfry.categories SET quiet_start = (date_trunc('second', now() AT TIME ZONE $1) - interval '2 hours')::time,
			quiet_end = (date_trunc('second', now() AT TIME ZONE $1) + interval '2 hours')::time WHERE name = 'operator_notice'`, zone)
	}
	around("Asia/Seoul")
	list := b.compose(t, id, 1, 2)
	require.Equal(t, []any{outbox.ActionDefer, outbox.ReasonQuietHours}, []any{list[0].Action, list[0].Reason})
	require.InDelta(t, (2*time.Hour + 30*time.Second).Seconds(), list[0].Wait.Seconds(), 30)
	require.Empty(t, list[0].Record)
	require.Equal(t, outbox.ActionSend, list[1].Action, "at UTC it is another time of day")
	around("UTC")
	list = b.compose(t, id, 1, 2)
	require.Equal(t, outbox.ActionSend, list[0].Action)
	require.Equal(t, []any{outbox.ActionDefer, 0}, []any{list[1].Action, list[1].Step}, "a zone that is not known is the configured one")
	require.Empty(t, list[1].Record, "what it bypasses is looked at again then")
	b.exec(t, `SELECT belfry.opt_out(2)`)
	require.Equal(t, outbox.ActionRefuse, b.compose(t, id, 2)[0].Action, "who opted out need not wait")
}

// A content that cannot be made ends as such; the database lets none in.
func TestCompose_RefusesBadContent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.job(t, nil)
	b.past(t, `UPDATE belfry.jobs SET body = '{{boom}}' WHERE id = $1`, id)
	got := b.compose(t, id, 1)[0]
	require.Equal(t, []any{outbox.ActionRefuse, outbox.Dead, outbox.ReasonBadContent}, []any{got.Action, got.Status, got.Reason})
	require.Empty(t, got.Delivery)
	b.past(t, `UPDATE belfry.jobs SET body = '', variants = '[]' WHERE id = $1`, id)
	require.Equal(t, outbox.ReasonBadContent, b.compose(t, id, 1)[0].Reason)
}

// What a user's own relation may lack, or hold, costs nothing but what needs it.
func TestCompose_ReadsAnyRelation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE VIEW people AS SELECT id, external_id, platform, nullif(id, 3) IS NOT NULL AS active,
		CASE id WHEN 1 THEN '{"push": 5, "sms": ["a"]}' WHEN 2 THEN '["push"]' END::jsonb AS addresses FROM belfry.channels`)
	who, err := channels.New(channels.Config{Relation: "people"})
	require.NoError(t, err)
	b.composer, err = compose.New(b.db.Pool, who, compose.DefaultConfig(), nil)
	require.NoError(t, err)
	id := b.job(t, pgx.NamedArgs{"title": `Hello {{attributes.name | default "friend"}}`, "route": []string{"sms", "push"}})
	list := b.compose(t, id, 1, 2, 3)
	require.Equal(t, []string{"5", "Hello friend"}, []string{list[0].Delivery.Address, list[0].Delivery.Title})
	require.Equal(t, outbox.ReasonNoAddress, list[1].Reason)
	require.Equal(t, outbox.ReasonOptedOut, list[2].Reason)
}

func TestCompose_SaysWhatItCannotRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.job(t, nil)
	m := b.claim(t, id, 1)
	b.exec(t, `DELETE FROM belfry.installation`)
	_, err := b.composer.Compose(t.Context(), []outbox.Claimed{m})
	require.ErrorContains(t, err, "compose 1 messages: belfry.installation has no row")
	b.exec(t, `INSERT INTO belfry.installation DEFAULT VALUES`)
	b.exec(t, `ALTER TABLE belfry.channels RENAME TO elsewhere`)
	_, err = b.composer.Compose(t.Context(), []outbox.Claimed{m})
	require.ErrorIs(t, err, channels.ErrRelation)
}

func TestConfig_NamesEveryProblem(t *testing.T) {
	t.Parallel()
	require.NoError(t, compose.DefaultConfig().Validate("delivery"))
	err := compose.Config{TimeZone: "Local", Jitter: 2 * time.Hour}.Validate("delivery")
	require.EqualError(t, err, `delivery.time_zone: "Local" is not a time zone; allowed values: names of the IANA database such as UTC, Asia/Seoul, Europe/Berlin
delivery.quiet_hours_jitter: 2h0m0s is not allowed; allowed values: 0 to 1h0m0s`)
	_, err = compose.New(nil, nil, compose.Config{}, nil)
	require.ErrorContains(t, err, "time_zone")
}

// A database that was restored draws ids again: the messages of a job that is restored keep their
// keys, and those of a new one that has an older one's id have others.
func TestCompose_KeyOfAnIDThatIsDrawnAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.job(t, pgx.NamedArgs{"title": "Tuesday's", "route": []string{"push"}})
	key := func() string { return b.compose(t, id, 1)[0].Delivery.Key }
	before := key()
	require.Equal(t, before, key())
	for _, at := range []string{"1 microsecond", "1 day"} {
		dbtest.Past(t, b.db.Pool, `UPDATE belfry.jobs SET created_at = created_at + $2::text::interval WHERE id = $1`, id, at)
		require.NotEqual(t, before, key(), at)
	}
}
