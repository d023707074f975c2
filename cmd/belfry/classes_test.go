package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/commands"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
)

// classCase is what a provider does, and what becomes of a message with two attempts:
// its status and reason, and the outcomes that are recorded. Some providers differ.
type classCase struct {
	fault string
	want  string
	but   map[string]string // by kind
}

var classCases = []classCase{
	{"", "SENT", map[string]string{"alimtalk": "SENT accepted"}},
	{"{for: all, status: 503}", "DEAD exhausted retryable retryable", nil},
	{"{for: all, status: 500}", "DEAD exhausted retryable retryable", nil},
	{"{for: all, status: 429, retry_after: 1s}", "DEAD exhausted retryable retryable", nil},
	{"{for: all, status: 502}", "DEAD unknown unknown unknown", map[string]string{"smtp": "DEAD exhausted retryable retryable"}},
	{"{for: all, status: 400}", "DEAD permanent permanent", nil},
	{"{for: all, do: hang}", "DEAD unknown unknown unknown", nil},
	{"{for: all, do: hang, accepted: true}", "DEAD unknown unknown unknown", nil},
	{"{for: all, do: reset}", "DEAD unknown unknown unknown", nil},
	{"{for: all, do: reset, accepted: false}", "DEAD unknown unknown unknown", nil},
	{"{for: all, do: reset, count: 1}", "SENT unknown", map[string]string{"alimtalk": "SENT unknown accepted"}},
	{"{for: all, do: invalid-address}", "DEAD invalid_address invalid_address", map[string]string{
		"alimtalk": "DEAD invalid_address accepted invalid_address",
		"webhook":  "DEAD permanent permanent", // its URL is the configuration's, and no address
	}},
	{"{for: alimtalk, do: undelivered}", "SENT", map[string]string{"alimtalk": "DEAD permanent accepted permanent"}},
	{"{for: alimtalk, do: unreported}", "SENT", map[string]string{"alimtalk": "SENT accepted unconfirmed"}},
	{"{for: alimtalk, do: refused}", "SENT", map[string]string{"alimtalk": "DEAD permanent permanent"}},
}

// everyKind is one sender of each kind, to the fakes, each with a medium of its own by
// the kind's name.
func everyKind(t *testing.T, server *fake.Server, retry relay.RetryConfig) settings.Senders {
	t.Helper()
	text, err := commands.Senders(server)
	require.NoError(t, err)
	var file struct {
		Senders []any `yaml:"senders"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &file))
	list, err := settings.DecodeSenders(file.Senders, retry)
	require.NoError(t, err)
	kinds := make(map[string]bool)
	for i := range list {
		list[i].Medium, list[i].Platforms = list[i].Kind, nil
		list[i].Timeout, list[i].Retry, list[i].Breaker.Failures = patience, retry, 0
		kinds[list[i].Kind] = true
	}
	require.ElementsMatch(t, settings.Kinds(), slices.Collect(maps.Keys(kinds)))
	require.NoError(t, relay.ValidateSenders("senders", list.Configs()))
	return list
}

// I9, I11: every kind of answer of every kind of provider ends as it should.
func TestLong_ClassesEverySenderAndAnswerAgainstTheFakes(t *testing.T) {
	t.Parallel()
	testClasses(t, relay.Exponential)
}

// The same by the other policy of retry.
func TestFault_EverySenderAndAnswerByLinearRetry(t *testing.T) {
	t.Parallel()
	testClasses(t, relay.Linear)
}

func testClasses(t *testing.T, policy relay.Policy) {
	t.Helper()
	retry := relay.RetryConfig{Attempts: 2, Policy: policy, Initial: time.Millisecond, Max: 5 * time.Millisecond}
	db := dbtest.New(t)
	server, err := fake.Start(t.Context(), fake.DefaultConfig())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	list := everyKind(t, server, retry)
	senders, done, err := list.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, done()) })
	who, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	composer, err := compose.New(db.Pool, who, compose.DefaultConfig(), nil)
	require.NoError(t, err)
	config := relay.DefaultConfig()
	config.PollInterval, config.Retry = 50*time.Millisecond, retry
	config.Receipts = relay.ReceiptConfig{Interval: 100 * time.Millisecond, Limit: time.Second}
	r, err := relay.New(db.Pool, composer, config, senders, relay.WithLogger(zerolog.Nop()))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()

	_, err = db.Pool.Exec(t.Context(), "INSERT INTO belfry.media (name) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING", settings.Kinds())
	require.NoError(t, err)
	want, got := make(map[string]map[string]string), make(map[string]map[string]string)
	for i, c := range classCases {
		calls := list.Configs()
		for k := range calls {
			if strings.Contains(c.fault, "hang") { // no other call ends by its timeout, however busy the machine is
				calls[k].Timeout = time.Second
			}
		}
		require.NoError(t, r.Reload(config, calls))
		want[c.fault], got[c.fault] = judgeClass(t, db, server, int64(i+1), c)
	}
	require.Equal(t, want, got)
	require.Zero(t, server.Summary().Total().Early, "before its Retry-After")
}

// judgeClass has one message sent by every kind, and reads what became of them: both by
// kind.
func judgeClass(t *testing.T, db *dbtest.DB, server *fake.Server, channel int64, c classCase) (want, got map[string]string) {
	t.Helper()
	var faults []fake.Fault
	if c.fault != "" {
		f, err := fake.ParseFault(c.fault)
		require.NoError(t, err)
		faults = targetsOf(f)
	}
	require.NoError(t, server.SetFaults(faults))
	addresses := map[string]any{
		"webhook": "x", "sms": "+821012345678", "fcm": "token-" + fmt.Sprint(channel), "apns": fmt.Sprintf("%064x", channel),
		"webpush": json.RawMessage(server.Subscription(fmt.Sprint(channel))), "smtp": "ann@example.com", "alimtalk": fmt.Sprintf("+8210123%05d", channel),
	}
	text, err := json.Marshal(addresses)
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), "INSERT INTO belfry.channels (id, external_id, platform, addresses) SELECT $1::bigint, 'u' || $1::bigint, 'ios', $2", channel, text)
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), "INSERT INTO belfry.activities (channel_id, title, body, route) SELECT $1, 'Hello', 'there', ARRAY[m] FROM unnest($2::text[]) m", channel, settings.Kinds())
	require.NoError(t, err)
	waitUntil(t, db.Pool, fmt.Sprintf("SELECT count(*) = %d FROM belfry.messages WHERE channel_id = %d AND status IN ('SENT', 'DEAD')", len(settings.Kinds()), channel))

	rows, err := db.Pool.Query(t.Context(), `SELECT a.route[1], concat_ws(' ', m.status, CASE m.status WHEN 'DEAD' THEN m.reason END,
		(SELECT string_agg(t.outcome, ' ' ORDER BY t.id) FROM belfry.attempts t WHERE t.job_id = m.job_id))
		FROM belfry.messages m JOIN belfry.activities a ON a.id = m.job_id WHERE m.channel_id = $1`, channel)
	require.NoError(t, err)
	want, got = make(map[string]string), make(map[string]string)
	var kind, came string
	_, err = pgx.ForEachRow(rows, []any{&kind, &came}, func() error {
		got[kind] = came
		want[kind] = c.want
		if other, ok := c.but[kind]; ok {
			want[kind] = other
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, got, len(settings.Kinds()))
	return want, got
}

// targetsOf gives each provider its own count: a fault of all has one together.
func targetsOf(f fake.Fault) (all []fake.Fault) {
	if f.For != "all" || f.Count == 0 {
		return []fake.Fault{f}
	}
	for _, p := range fake.Providers() {
		f.For = string(p)
		all = append(all, f)
	}
	return all
}
