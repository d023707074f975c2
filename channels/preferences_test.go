package channels

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// An opt-out is recorded once, counts for its channel, and is taken back exactly.
func TestOptOuts_AreTheChannels(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := OptOutChannel(b.ctx, b.pool, OptOut{ChannelID: 7, Category: "operator_notice", Medium: "sms", Reason: "by mail"})
	require.NoError(t, err)
	require.Equal(t, []any{int64(7), "operator_notice", "sms", "by mail"}, []any{first.ChannelID, first.Category, first.Medium, first.Reason})
	require.WithinDuration(t, time.Now(), first.OptedOutAt, time.Hour)
	again, err := OptOutChannel(b.ctx, b.pool, OptOut{ChannelID: 7, Category: "operator_notice", Medium: "sms", Reason: "again"})
	require.NoError(t, err)
	require.Equal(t, first, again, "the first one stays")
	all, err := OptOutChannel(b.ctx, b.pool, OptOut{ChannelID: 7})
	require.NoError(t, err)
	require.Equal(t, []string{Any, Any}, []string{all.Category, all.Medium})
	other, err := OptOutChannel(b.ctx, b.pool, OptOut{ChannelID: 8, Medium: "push"})
	require.NoError(t, err)

	list, err := OptOuts(b.ctx, b.pool, []int64{7, 9})
	require.NoError(t, err)
	require.Equal(t, []OptOut{all, first}, list, "8 lies between")
	list, err = OptOuts(b.ctx, b.pool, []int64{9000, 8, 7})
	require.NoError(t, err)
	require.Equal(t, []OptOut{all, first, other}, list, "far apart")
	removed, err := OptInChannel(b.ctx, b.pool, 7, "", "")
	require.NoError(t, err)
	require.Equal(t, []OptOut{all}, removed)
	removed, err = OptInChannel(b.ctx, b.pool, 7, "", "")
	require.NoError(t, err)
	require.Empty(t, removed)
	list, err = OptOuts(b.ctx, b.pool, []int64{7, 8})
	require.NoError(t, err)
	require.Equal(t, []OptOut{first, other}, list)
}

func TestOptOut_Covers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		category, medium string
		covers           bool
	}{
		{Any, Any, true}, {"a", Any, true}, {Any, "m", true}, {"a", "m", true},
		{"b", Any, false}, {Any, "n", false}, {"b", "m", false}, {"a", "n", false}, {"", "", false},
	} {
		require.Equal(t, c.covers, OptOut{Category: c.category, Medium: c.medium}.Covers("a", "m"), "%v", c)
	}
}

func TestOptOut_OfWhatDoesNotExistIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		o    OptOut
		want string
	}{
		{OptOut{ChannelID: 7, Category: "notices"}, "belfry.opt_outs.category: 'notices' is not a category; allowed values: * (every category), activity, operator_notice, popular_content, question_content"},
		{OptOut{ChannelID: 7, Medium: "fax"}, "belfry.opt_outs.medium: 'fax' is not a medium; allowed values: * (every medium), alimtalk, email, push, sms, webhook"},
		{OptOut{ChannelID: 7, Reason: strings.Repeat("x", 1001)}, "belfry.opt_outs.reason: has 1001 characters; allowed values: texts of 0 to 1000 characters"},
	} {
		_, err := OptOutChannel(b.ctx, b.pool, c.o)
		require.ErrorIs(t, err, ErrPreference)
		require.ErrorContains(t, err, c.want)
	}
}

// A NULL is refused as any other value that is not allowed.
func TestMapError_ANullNamesTheFieldAndTheAllowedValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for table, sql := range map[string]string{
		"opt_outs.reason":        `INSERT INTO belfry.opt_outs (channel_id, reason) VALUES (7, NULL)`,
		"opt_outs.channel_id":    `INSERT INTO belfry.opt_outs (channel_id) VALUES (NULL)`,
		"categories.description": `UPDATE belfry.categories SET description = NULL`,
	} {
		_, err := b.pool.Exec(b.ctx, sql)
		err = Explain(err)
		require.ErrorIs(t, err, ErrPreference)
		require.ErrorContains(t, err, "belfry."+table+": is null; allowed values: all but null")
	}
}

func TestInvalidAddresses_AreTheChannels(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hash := strings.Repeat("\x07", 32)
	b.exec(t, `INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256) VALUES (7, 'push', $1), (7, 'sms', $1), (8, 'push', $1)`, []byte(hash))
	want := []InvalidAddress{{7, "push", []byte(hash)}, {7, "sms", []byte(hash)}}
	for _, ids := range [][]int64{{7}, {7, 9}, {9000, 7}} { // one range, with 8 between, and one by one
		list, err := InvalidAddresses(b.ctx, b.pool, ids)
		require.NoError(t, err)
		require.ElementsMatch(t, want, list)
	}
	list, err := InvalidAddresses(b.ctx, b.pool, nil)
	require.NoError(t, err)
	require.Empty(t, list)
}

// A role that delivers cannot make a channel's rows a burden to relays: the 20 newest stay, however they are inserted.
func TestInvalidAddresses_OfAChannelAreBounded(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 10)
	role := db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.invalid_addresses TO :role`)
	_, err := role.Pool.Exec(t.Context(), `INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256, recorded_at)
		SELECT 7 + g % 2, CASE WHEN g < 50 THEN 'push' ELSE 'sms' END, sha256(g::text::bytea), '2026-01-01'::timestamptz + g * interval '1 second' FROM generate_series(1, 100) g`)
	require.NoError(t, err)
	list, err := InvalidAddresses(t.Context(), db.Pool, []int64{7, 8})
	require.NoError(t, err)
	require.Len(t, list, 40)
	_, err = role.Pool.Exec(t.Context(), `INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256) VALUES (7, 'push', sha256('new'))`)
	require.NoError(t, err)
	var n, old int
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE recorded_at <= '2026-01-01'::timestamptz + interval '62 seconds') FROM belfry.invalid_addresses WHERE channel_id = 7`).Scan(&n, &old))
	require.Equal(t, []int{20, 0}, []int{n, old}, "the oldest gave way")
}

// An operator's change of a category is recorded with what differs, before and after.
func TestSetCategory_IsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	quiet, most := QuietHours{Start: 21 * time.Hour, End: 8*time.Hour + 30*time.Minute}, Cap{Max: 3, Window: 24 * time.Hour}
	c, err := SetCategory(b.ctx, b.pool, "operator_notice", CategoryChange{Route: []string{"push", "sms"}, Quiet: &quiet, Cap: &most}, By{Actor: "ann", Reason: "calm nights"})
	require.NoError(t, err)
	want := Category{Name: "operator_notice", Description: "operator notices to all or some platforms", Route: []string{"push", "sms"}, Quiet: &quiet, Cap: &most}
	require.Positive(t, c.Version)
	want.Version = c.Version
	require.Equal(t, want, c)
	c, err = SetCategory(b.ctx, b.pool, "operator_notice", CategoryChange{ClearQuiet: true}, By{Actor: "ben"})
	require.NoError(t, err)
	require.Greater(t, c.Version, want.Version)
	want.Quiet, want.Version = nil, c.Version
	require.Equal(t, want, c, "the rest stays")
	_, err = SetCategory(b.ctx, b.pool, "operator_notice", CategoryChange{Route: []string{"push", "sms"}}, By{Actor: "ben", Reason: "nothing new"})
	require.NoError(t, err)
	_, err = SetCategory(b.ctx, b.pool, "operator_notice", CategoryChange{ClearCap: true}, By{})
	require.NoError(t, err)

	ceiling := 500
	c, err = SetCategory(b.ctx, b.pool, "operator_notice", CategoryChange{MaxRecipients: &ceiling}, By{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, &ceiling, c.MaxRecipients)
	c, err = SetCategory(b.ctx, b.pool, "operator_notice", CategoryChange{ClearMaxRecipients: true}, By{Actor: "ann"})
	require.NoError(t, err)
	require.Nil(t, c.MaxRecipients)

	list, err := Categories(b.ctx, b.pool)
	require.NoError(t, err)
	require.Len(t, list, 4)
	require.Equal(t, "activity", list[0].Name)
	require.Greater(t, list[1].Version, want.Version, "other acts have changed it since")
	want.Cap, want.Version = nil, list[1].Version
	require.Equal(t, want, list[1])
	encoded, err := json.Marshal(Category{Name: "x", Route: []string{"sms"}, Quiet: &quiet, Cap: &most})
	require.NoError(t, err)
	require.JSONEq(t, `{"name": "x", "description": "", "route": ["sms"], "quiet_hours": "21:00-08:30", "cap": "3/24h", "max_recipients": null, "approval_above": null, "activities_per_hour": null, "version": 0}`, string(encoded))

	rows, err := b.pool.Query(b.ctx, `SELECT concat_ws(' | ', kind, CASE WHEN actor = session_user THEN 'me' ELSE actor END, reason, detail -> 'before', detail -> 'after')
		FROM belfry.events WHERE subject = 'category' AND name = 'operator_notice' ORDER BY id`)
	require.NoError(t, err)
	events, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{
		`changed | ann | calm nights | {"cap": null, "route": ["push"], "quiet_end": null, "cap_window": null, "quiet_start": null} | {"cap": 3, "route": ["push", "sms"], "quiet_end": "08:30:00", "cap_window": "24:00:00", "quiet_start": "21:00:00"}`,
		`changed | ben |  | {"quiet_end": "08:30:00", "quiet_start": "21:00:00"} | {"quiet_end": null, "quiet_start": null}`,
		`changed | me |  | {"cap": 3, "cap_window": "24:00:00"} | {"cap": null, "cap_window": null}`,
		`changed | ann |  | {"max_recipients": null} | {"max_recipients": 500}`,
		`changed | ann |  | {"max_recipients": 500} | {"max_recipients": null}`,
	}, events)
}

func TestSetCategory_RefusesWhatIsNotAllowed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := SetCategory(b.ctx, b.pool, "notices", CategoryChange{ClearCap: true}, By{})
	require.ErrorIs(t, err, ErrNoCategory)
	for _, c := range []struct {
		change CategoryChange
		want   string
	}{
		{CategoryChange{Route: []string{"fax"}}, "belfry.categories.route: {fax} is not allowed; allowed values: 1 to 10 different media of alimtalk, email, push, sms, webhook"},
		{CategoryChange{Route: []string{}}, "belfry.categories.route: {} is not allowed"},
		{CategoryChange{Quiet: &QuietHours{}}, "belfry.categories.quiet_end: 00:00:00 is quiet_start too; allowed values: two different times of day"},
		{CategoryChange{Cap: &Cap{Max: 0, Window: time.Hour}}, "belfry.categories.cap: 0 is not allowed; allowed values: cap 1 to 10000 with a cap_window"},
		{CategoryChange{Cap: &Cap{Max: 1, Window: time.Second}}, "belfry.categories.cap_window: 00:00:01 is not allowed; allowed values: null, or intervals from 1 minute to 366 days"},
	} {
		_, err := SetCategory(b.ctx, b.pool, "operator_notice", c.change, By{})
		require.ErrorIs(t, err, ErrPreference)
		require.ErrorContains(t, err, c.want)
	}
	for sql, want := range map[string]string{
		`UPDATE belfry.categories SET quiet_start = '21:00'`:                               "belfry.categories.quiet_end: is null; allowed values: two different times of day",
		`UPDATE belfry.categories SET quiet_end = '21:00'`:                                 "belfry.categories.quiet_start: is null; allowed values",
		`UPDATE belfry.categories SET quiet_start = '00:00', quiet_end = '24:00'`:          "belfry.categories.quiet_end: 00:00:00 is quiet_start too",
		`UPDATE belfry.categories SET cap = 5`:                                             "belfry.categories.cap_window: null is not allowed",
		`UPDATE belfry.categories SET cap_window = '1 day'`:                                "belfry.categories.cap: null is not allowed",
		`INSERT INTO belfry.categories (name) VALUES ('Likes')`:                            "belfry.categories.name: 'Likes' is not a category's name; allowed values: 1 to 63 of a-z, 0-9 and _, starting with a letter",
		`UPDATE belfry.categories SET route = NULL`:                                        "belfry.categories.route: null is not allowed",
		`INSERT INTO belfry.categories (name, cap, cap_window) VALUES ('a', 1, '2 years')`: "belfry.categories.cap_window: 2 years is not allowed",
	} {
		_, err := b.pool.Exec(b.ctx, sql)
		require.ErrorContains(t, err, want, sql)
	}
}

func TestQuietHoursAndCap_AreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"21:00-08:00": "", " 09:30-09:31 ": "09:30-09:31", "20:00-24:00": "20:00-00:00", "00:00:01-23:59:59": "", "24:00-06:00": "00:00-06:00"} {
		h, err := ParseQuietHours(text)
		require.NoError(t, err, text)
		if want == "" {
			want = text
		}
		require.Equal(t, want, h.String())
		again, err := ParseQuietHours(h.String())
		require.NoError(t, err)
		require.Equal(t, h, again)
	}
	for _, text := range []string{"", "21-08", "21:00", "25:00-08:00", "24:01-08:00", "21:60-08:00", "21:00-21:00", "00:00-24:00", "9:00-10:00", "21:00 - 08:00"} {
		_, err := ParseQuietHours(text)
		require.ErrorContains(t, err, "allowed values: two different times of day such as 21:00-08:00", "%q", text)
	}
	for text, want := range map[string]string{"3/24h": "", "1/1m": "", "10000/8784h": "", "2/90m": "2/1h30m", "5/1h0m30s": "", "5/61s": "5/1m1s"} {
		c, err := ParseCap(text)
		require.NoError(t, err, text)
		if want == "" {
			want = text
		}
		require.Equal(t, want, c.String())
	}
	for _, text := range []string{"", "3", "0/24h", "10001/24h", "3/59s", "3/8785h", "3/90.5s", "-1/1h", "3/1d", "x/1h"} {
		_, err := ParseCap(text)
		require.ErrorContains(t, err, "allowed values: a number of messages from 1 to 10000", "%q", text)
	}
	var c Category
	require.NoError(t, json.Unmarshal([]byte(`{"quiet_hours": "21:00-08:00", "cap": "3/24h"}`), &c))
	require.Equal(t, Category{Quiet: &QuietHours{21 * time.Hour, 8 * time.Hour}, Cap: &Cap{3, 24 * time.Hour}}, c)
	require.Error(t, errors.Join(json.Unmarshal([]byte(`{"cap": "x"}`), &c)))
}
