package channels

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

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
