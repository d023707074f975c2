package channels

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/internal/db"
)

// A lost connection is the database's, whoever asks.
func TestRecipients_OfADatabaseThatIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	nowhere, err := pgxpool.New(b.ctx, "host="+t.TempDir()+" user=nobody dbname=none")
	require.NoError(t, err)
	t.Cleanup(nowhere.Close)
	_, err = b.store.Recipients(b.ctx, nowhere, []int64{1})
	require.ErrorIs(t, err, db.ErrUnreachable)
}

// Those that exist come, active or not, with what they are now.
func TestRecipients_AreThoseThatExist(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform, active, locale, time_zone, attributes, addresses) VALUES
		(1, 'u-1', 'ios', true, 'ko', 'Asia/Seoul', '{"a": 1}', '{"push": "t"}'), (2, 'u-2', 'web', false, '', '', '{}', '{}'), (3, 'u-3', 'web', true, '', '', '{}', '{}')`)
	list, err := b.store.Recipients(b.ctx, b.pool, []int64{2, 1, 99})
	require.NoError(t, err)
	slices.SortFunc(list, func(x, y Recipient) int { return int(x.ID - y.ID) })
	empty := json.RawMessage("{}")
	require.Equal(t, []Recipient{
		{ID: 1, ExternalID: "u-1", Platform: "ios", Active: true, Locale: "ko", TimeZone: "Asia/Seoul", Attributes: json.RawMessage(`{"a": 1}`), Addresses: json.RawMessage(`{"push": "t"}`)},
		{ID: 2, ExternalID: "u-2", Platform: "web", Attributes: empty, Addresses: empty},
	}, list)
	list, err = b.store.Recipients(b.ctx, b.pool, nil)
	require.NoError(t, err)
	require.Empty(t, list)
}

// Ids that lie close together are one range, of which only those that were asked for count; a few
// never are.
func TestRecipients_OfARange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform, active, attributes, addresses)
		SELECT g, 'u-' || g, 'ios', true, '{"a": 1}', '{"push": "t"}' FROM generate_series(1, 100) g WHERE g <> 13`)
	b.exec(t, `INSERT INTO belfry.opt_outs (channel_id, medium) SELECT g, 'sms' FROM generate_series(1, 100) g WHERE g <> 13`)
	b.exec(t, `INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256) SELECT g, 'push', sha256('x') FROM generate_series(1, 100) g WHERE g <> 13`)
	var near, apart []int64
	for id := range int64(fewestDense) {
		near, apart = append(near, 10+id+id/4), append(apart, 100-3*id)
	}
	for name, ids := range map[string][]int64{"close": near, "apart": apart, "few": {11, 13, 12}} {
		_, _, dense := denseIn(ids, denseRecipients)
		require.Equal(t, name == "close", dense, name)
		for _, bare := range []bool{false, true} {
			read := map[bool]func(context.Context, Querier, []int64) ([]Recipient, error){false: b.store.Recipients, true: b.store.RecipientsBare}[bare]
			list, err := read(b.ctx, b.pool, ids)
			require.NoError(t, err)
			var found []int64
			for _, r := range list {
				found = append(found, r.ID)
				require.JSONEq(t, map[bool]string{false: `{"a": 1}`, true: "{}"}[bare], string(r.Attributes))
				require.JSONEq(t, `{"push": "t"}`, string(r.Addresses))
			}
			require.ElementsMatch(t, without(13, ids), found)
		}
		var optedOut, invalid []int64
		optOuts, err := OptOuts(b.ctx, b.pool, ids)
		require.NoError(t, err)
		for _, o := range optOuts {
			optedOut = append(optedOut, o.ChannelID)
		}
		addresses, err := InvalidAddresses(b.ctx, b.pool, ids)
		require.NoError(t, err)
		for _, a := range addresses {
			invalid = append(invalid, a.ChannelID)
		}
		require.ElementsMatch(t, without(13, ids), optedOut, name)
		require.ElementsMatch(t, without(13, ids), invalid, name)
	}
}

func without(id int64, ids []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(ids), func(one int64) bool { return one == id })
}

// A user's own relation may lack the optional columns, and hold NULLs.
func TestRecipients_OfAnotherRelation(t *testing.T) {
	t.Parallel()
	b := setupOn(t, "people")
	_, err := b.store.Recipients(b.ctx, b.pool, []int64{1})
	require.ErrorIs(t, err, ErrRelation)
	b.exec(t, `CREATE TABLE people (id bigint PRIMARY KEY, external_id varchar(20), platform text, active boolean, addresses jsonb)`)
	b.exec(t, `INSERT INTO people VALUES (1, 'a', 'ios', true, '{"sms": "1"}'), (2, NULL, NULL, NULL, NULL)`)
	list, err := b.store.Recipients(b.ctx, b.pool, []int64{1, 2})
	require.NoError(t, err)
	empty := json.RawMessage("{}")
	require.ElementsMatch(t, []Recipient{
		{ID: 1, ExternalID: "a", Platform: "ios", Active: true, Attributes: empty, Addresses: json.RawMessage(`{"sms": "1"}`)},
		{ID: 2, Attributes: empty, Addresses: empty},
	}, list)
	b.exec(t, `ALTER TABLE people ADD COLUMN locale text DEFAULT 'fr'`)
	list, err = b.store.Recipients(b.ctx, b.pool, []int64{1})
	require.NoError(t, err)
	require.Equal(t, "fr", list[0].Locale, "a new column is seen at once")
}

// A user's own relation may hold texts of any length. What belfry.channels would refuse is unknown, and does not
// leave the server whole.
func TestRecipients_LongTextsAreUnknown(t *testing.T) {
	t.Parallel()
	b := setupOn(t, "people")
	b.exec(t, `CREATE TABLE people (id bigint PRIMARY KEY, external_id text, platform text, active boolean, locale text, time_zone varchar, addresses jsonb)`)
	b.exec(t, `INSERT INTO people SELECT g, 'u', repeat('é', 31 + n), true, repeat('é', 34 + n), repeat('é', 63 + n), jsonb_build_object('push', repeat('t', CASE g % 3 WHEN 2 THEN 65530 ELSE 65000 END))
		FROM generate_series(1, 40) g, LATERAL (SELECT CASE g % 3 WHEN 0 THEN 1 WHEN 1 THEN 2 ELSE 100000 END) l (n)`)
	var near []int64
	for id := range int64(40) {
		near = append(near, id+1)
	}
	fits := [3]string{strings.Repeat("é", 32), strings.Repeat("é", 35), strings.Repeat("é", 64)}
	for _, ids := range [][]int64{{1, 2, 3}, near} { // each, and a range
		list, err := b.store.RecipientsBare(b.ctx, b.pool, ids)
		require.NoError(t, err)
		require.Len(t, list, len(ids))
		for _, r := range list {
			want := map[bool][3]string{true: fits}[r.ID%3 == 0]
			require.Equal(t, want, [3]string{r.Platform, r.Locale, r.TimeZone}, r.ID)
			require.Equal(t, r.ID%3 == 2, string(r.Addresses) == "{}", r.ID)
		}
	}
	have, err := b.store.Columns(b.ctx, b.pool)
	require.NoError(t, err)
	rows, err := b.pool.Query(b.ctx, b.store.renderOptional(queries.recipients, have), pgx.StrictNamedArgs{"ids": []int64{2}, "attributes": false})
	require.NoError(t, err)
	require.True(t, rows.Next())
	values := rows.RawValues()
	for _, value := range values[:len(values)-1] { // except the addresses
		require.Less(t, len(value), 200)
	}
	rows.Close()
	bound, err := b.store.Bound(b.ctx, b.pool)
	require.NoError(t, err)
	for name, a := range map[string]Audience{"page": Everyone(), "slice": WithIDs(2, 3)} {
		walk, err := b.store.Open(b.ctx, b.pool, a, cursor.Position{}, bound)
		require.NoError(t, err)
		page, err := walk.Channels(b.ctx, b.pool, cursor.Position{}, 3)
		require.NoError(t, err)
		require.NotEmpty(t, page.Rows, name)
		for _, c := range page.Rows {
			want := map[bool][3]string{true: fits}[c.ID%3 == 0]
			require.Equal(t, want, [3]string{c.Platform, c.Locale, c.TimeZone}, "%s %d", name, c.ID)
		}
	}
}
