package compose_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bundle is one test's database, with the channels 1 to 3: u-1 has an address for every
// medium, u-2 only for sms, u-3 none.
type bundle struct {
	db       *dbtest.DB
	who      *channels.Store
	composer *compose.Composer
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return setupOn(t, dbtest.Reused(t, 4))
}

func setupOn(t *testing.T, db *dbtest.DB) *bundle {
	t.Helper()
	who, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	b := &bundle{db: db, who: who}
	b.composer = b.newComposer(t, compose.DefaultConfig(), 0)
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform, locale, time_zone, attributes, addresses) VALUES
		(1, 'u-1', 'ios', 'ko-KR', 'Asia/Seoul', '{"name": "Mina"}',
		 '{"push": "token-1", "sms": "+821", "alimtalk": "821", "email": "m@example.org", "webhook": {"url": "https://example.org"}}'),
		(2, 'u-2', 'android', 'en-GB', '', '{}', '{"sms": "+822", "push": ""}'),
		(3, 'u-3', 'web', '', '', '{}', '{}')`)
	return b
}

func (b *bundle) newComposer(t *testing.T, config compose.Config, random float64) *compose.Composer {
	t.Helper()
	c, err := compose.New(b.db.Pool, b.who, config, func() float64 { return random })
	require.NoError(t, err)
	return c
}

func (b *bundle) exec(t require.TestingT, sql string, args ...any) {
	_, err := b.db.Pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

// past executes a statement past the triggers.
func (b *bundle) past(t require.TestingT, sql string, args ...any) {
	dbtest.Past(t, b.db.Pool, sql, args...)
}

// one reads a single value.
func one[T any](t require.TestingT, b *bundle, sql string, args ...any) (v T) {
	require.NoError(t, b.db.Pool.QueryRow(context.Background(), sql, args...).Scan(&v))
	return v
}

// job makes a started push job with PENDING messages to the channels 1 to 3.
func (b *bundle) job(t require.TestingT, columns pgx.NamedArgs) int64 {
	args := pgx.NamedArgs{"category": "operator_notice", "title": "told", "body": "", "variants": "{}", "route": nil, "data": "{}"}
	for k, v := range columns {
		args[k] = v
	}
	var id int64
	require.NoError(t, b.db.Pool.QueryRow(context.Background(), `SELECT belfry.enqueue('push', @category, @title, @body, variants => @variants, route => @route, data => @data)`, args).Scan(&id))
	b.exec(t, `UPDATE belfry.jobs SET started_at = now() WHERE id = $1`, id)
	b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT $1, g, now() FROM generate_series(1, 3) g`, id)
	return id
}

// send makes an activity.
func (b *bundle) send(t require.TestingT, channel int64, category, title string) int64 {
	return one[int64](t, b, `SELECT belfry.send($1, $2, $3)`, channel, category, title)
}

// claim takes a message into flight.
func (b *bundle) claim(t require.TestingT, job, channel int64) outbox.Claimed {
	b.exec(t, `UPDATE belfry.message_rows SET status = 'PROCESSING', lease_id = 1 WHERE job_id = $1 AND channel_id = $2`, job, channel)
	return outbox.Claimed{Key: outbox.Key{JobID: job, ChannelID: channel}, LeaseID: 1}
}

// compose claims messages of one job and composes them.
func (b *bundle) compose(t require.TestingT, job int64, ids ...int64) []outbox.Composed {
	var list []outbox.Claimed
	for _, id := range ids {
		list = append(list, b.claim(t, job, id))
	}
	return b.composed(t, list...)
}

func (b *bundle) composed(t require.TestingT, list ...outbox.Claimed) []outbox.Composed {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	composed, err := b.composer.Compose(ctx, list)
	require.NoError(t, err)
	require.Len(t, composed, len(list))
	for i, c := range composed {
		require.Equal(t, list[i], c.Claimed)
	}
	return composed
}
