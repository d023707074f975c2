package compose_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
)

func (b *bundle) preview(t *testing.T, what compose.Content, audience channels.Audience) compose.Preview {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := b.composer.Preview(ctx, what, audience)
	require.NoError(t, err)
	return p
}

// What a preview says is what Compose would do of the same messages.
func TestPreview_SaysWhatWouldBeComposed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform, locale, addresses, active) VALUES
		(4, 'u-4', 'ios', 'ko', '{"push": "token-4", "sms": "+824"}', true), (5, 'u-5', 'ios', 'ko', '{"push": "token-5"}', true),
		(6, 'u-6', 'ios', 'ko', '{"push": "token-6"}', false), (7, 'u-7', 'ios', 'ko', '{"push": "token-7"}', true)`)
	b.exec(t, `SELECT belfry.opt_out(5, 'popular_content'), belfry.opt_out(4, '*', 'push')`)
	b.exec(t, `INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256) VALUES (7, 'push', $1)`, outbox.AddressHash("token-7"))
	what := compose.Content{
		Category: "popular_content", Title: "Hello {{attributes.name}}", Body: "{{attributes.points | default \"0\"}} points, {{attributes.tier}}",
		Variants: json.RawMessage(`{"en": {"title": "Dear {{attributes.name | default \"you\"}}"}}`), Data: json.RawMessage(`{"a": 1}`),
		Route: []string{"push", "sms"}, Messages: true,
	}
	p := b.preview(t, what, channels.Everyone())
	require.Equal(t, compose.Preview{
		Channels: 6, LookedAt: 6, Exact: true,
		Platforms: map[string]int64{"ios": 4, "android": 1, "web": 1}, Locales: map[string]int64{"ko-KR": 1, "en-GB": 1, "": 1, "ko": 3},
		Media: map[string]int64{"push": 1, "sms": 2}, NoAddress: 1, InvalidAddress: 1, OptedOut: 1,
		MissingAttributes: map[string]int64{"name": 1, "tier": 3},
		Samples: []compose.Sample{
			{ChannelID: 1, ExternalID: "u-1", Platform: "ios", Locale: "ko-KR", Medium: "push", Title: "Hello Mina", Body: "0 points, ", Data: what.Data},
			{ChannelID: 2, ExternalID: "u-2", Platform: "android", Locale: "en-GB", Medium: "sms", Title: "Dear you", Body: "0 points, ", Data: what.Data},
			{ChannelID: 4, ExternalID: "u-4", Platform: "ios", Locale: "ko", Medium: "sms", Title: "Hello ", Body: "0 points, ", Data: what.Data},
		},
	}, p)

	// A notification goes by no medium.
	what.Messages = false
	p = b.preview(t, what, channels.WithExternalIDs("u-1", "u-3", "nobody"))
	require.Equal(t, int64(2), p.Channels)
	require.Empty(t, p.Media)
	require.Equal(t, "Hello Mina", p.Samples[0].Title)
	what.Body = "{{value.score}}"
	p = b.preview(t, what, channels.WithExternalIDs("u-1"))
	require.Equal(t, "[score]", p.Samples[0].Body, "values are known when the job is enqueued")
	what.JobID = b.job(t, pgx.NamedArgs{"title": what.Title, "body": what.Body, "route": what.Route, "data": `{}`, "variants": `{}`})
	b.past(t, `INSERT INTO belfry.job_values VALUES ($1, 3, '{"score": 12}')`, what.JobID)
	p = b.preview(t, what, channels.WithExternalIDs("u-1", "u-3"))
	require.Equal(t, []int64{2, 1}, []int64{p.LookedAt, p.NoValue})
	require.Len(t, p.Samples, 1)
	require.Equal(t, "12", p.Samples[0].Body)
	what.JobID = 0

	// Quiet hours hold at the time that it is to be sent; the cap counts what was sent.
	what.Messages = true
	b.exec(t, `UPDATE belfry.categories SET quiet_start = '22:00', quiet_end = '08:00', cap = 1, cap_window = '24 hours' WHERE name = 'popular_content'`)
	noon := time.Date(time.Now().Year()+1, 6, 1, 12, 0, 0, 0, time.UTC) // 21:00 in Seoul
	what.At = noon
	require.Zero(t, b.preview(t, what, channels.Everyone()).QuietHours)
	what.At = noon.Add(90 * time.Minute)
	require.EqualValues(t, 1, b.preview(t, what, channels.Everyone()).QuietHours)
	sent := b.send(t, 2, "popular_content", "before")
	b.exec(t, `UPDATE belfry.message_rows SET status = 'SENT', sent_at = now() WHERE job_id = $1`, sent)
	p = b.preview(t, what, channels.Everyone())
	require.EqualValues(t, 1, p.Capped)
	require.EqualValues(t, 2, p.Media["sms"], "those are among them")

	_, err := b.composer.Preview(t.Context(), compose.Content{Category: "nothing"}, channels.Everyone())
	require.ErrorIs(t, err, channels.ErrNoCategory)
	_, err = b.composer.Preview(t.Context(), what, channels.Audience{})
	require.ErrorIs(t, err, channels.ErrAudience)
	what.Title = "{{nonsense}}"
	require.EqualValues(t, 2, b.preview(t, what, channels.Everyone()).BadContent, "the variant is good")
}

// Of a large audience it looks at slices of all of it, at bounded cost, and counts exactly.
func TestLong_PreviewOfManyIsASampleOfAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform, locale) SELECT n, 'n-' || n, 'web', 'l' || n / 25000 FROM generate_series(1001, 150000) n`)
	b.exec(t, `ANALYZE belfry.channels`)
	p := b.preview(t, compose.Content{Category: "operator_notice", Title: "t"}, channels.Everyone())
	require.False(t, p.Exact)
	require.EqualValues(t, 149003, p.Channels)
	require.InDelta(t, 100_000, p.LookedAt, 1000)
	for _, locale := range []string{"l0", "l1", "l2", "l3", "l4", "l5"} {
		require.InDelta(t, 100_000/6, p.Locales[locale], 2500, locale)
	}
	require.Len(t, p.Samples, 3)
}
