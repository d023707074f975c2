package channels

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

func TestAudience_JSONIsTheShapeOfTheJobsTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.segments (name) VALUES ('vip')`)
	narrowed := Within(-17, 180, 1.5)
	narrowed.Platforms = []string{"ios"}
	vip := InSegment("vip")
	vip.Platforms = []string{"web", "android"}
	tests := []struct {
		audience Audience
		sql      string // constructor of the same, "" if there is none
		text     string
	}{
		{Everyone(), `belfry.audience_everyone()`, "everyone"},
		{OnPlatforms("ios", "android"), `belfry.audience_platforms('ios', 'android')`, "on ios, android"},
		{Within(37.57, 126.98, 30000), `belfry.audience_radius(37.57, 126.98, 30000)`, "within 30 km of 37.57, 126.98"},
		{Within(0, 0, 750), `belfry.audience_radius(0, 0, 750)`, "within 750 m of 0, 0"},
		{narrowed, ``, "within 1.5 m of -17, 180 on ios"},
		{WithIDs(1, -2, 3), `belfry.audience_channels(1, -2, 3)`, "3 listed channels"},
		{WithIDs(1100000000000000001, math.MaxInt64, -math.MaxInt64), `belfry.audience_channels(1100000000000000001, 9223372036854775807, -9223372036854775807)`, "3 listed channels"},
		{WithExternalIDs("u \"1\"<é"), `belfry.audience_external_ids('u "1"<é')`, "1 listed external id"},
		{InSegment("vip"), `belfry.audience_segment('vip')`, "segment vip"},
		{vip, ``, "segment vip on web, android"},
	}
	for _, tt := range tests {
		encoded, err := json.Marshal(tt.audience)
		require.NoError(t, err)
		b.exec(t, `SELECT belfry.check_audience('jobs', $1::jsonb)`, string(encoded))
		parsed, err := ParseAudience(encoded)
		require.NoError(t, err)
		require.Equal(t, tt.audience, parsed)
		require.Equal(t, tt.text, parsed.String())
		if tt.sql != "" {
			var built string
			require.NoError(t, b.pool.QueryRow(b.ctx, `SELECT `+tt.sql).Scan(&built))
			require.JSONEq(t, string(encoded), built)
		}
	}
	require.Equal(t, "no audience", Audience{}.String())
}

// JavaScript writes ids above 2^53 as texts.
func TestParseAudience_TakesIDsAsTexts(t *testing.T) {
	t.Parallel()
	parsed, err := ParseAudience([]byte(`{"kind": "channels", "ids": ["1100000000000000001", 2]}`))
	require.NoError(t, err)
	require.Equal(t, WithIDs(1100000000000000001, 2), parsed)
}

// badAudiences have a golden file of errors. Those that the database judges too
// are refused by belfry.check_audience as well, so the two cannot drift apart.
var badAudiences = []string{
	``, `null`, `[]`, `"everyone"`, `{`, `{"kind": "everyone"} {}`,
	`{}`, `{"kind": null}`, `{"kind": "all"}`, `{"kind": 1}`, `{"kind": "everyone", "platforms": ["ios"]}`, `{"kind": "everyone", "x": 1}`,
	`{"kind": "platforms"}`, `{"kind": "platforms", "platforms": []}`, `{"kind": "platforms", "platforms": "ios"}`, `{"kind": "platforms", "platforms": null}`,
	`{"kind": "platforms", "platforms": [null]}`, `{"kind": "platforms", "platforms": ["i os"]}`,
	`{"kind": "radius", "latitude": 1, "longitude": 2}`, `{"kind": "radius", "latitude": 91, "longitude": 2, "radius_m": 3}`,
	`{"kind": "radius", "latitude": "1", "longitude": 2, "radius_m": 3}`, `{"kind": "radius", "latitude": null, "longitude": 2, "radius_m": 3}`,
	`{"kind": "radius", "latitude": 1, "longitude": -180.1, "radius_m": 3}`, `{"kind": "radius", "latitude": 1, "longitude": 2, "radius_m": 0.5}`,
	`{"kind": "radius", "latitude": 1, "longitude": 2, "radius_m": 20037510}`, `{"kind": "radius", "latitude": 1, "longitude": 2, "radius": 3}`,
	`{"kind": "radius", "latitude": 1, "longitude": 2, "radius_m": 3, "platforms": []}`,
	`{"kind": "channels"}`, `{"kind": "channels", "ids": [1], "external_ids": ["a"]}`, `{"kind": "channels", "ids": []}`, `{"kind": "channels", "ids": [1.5]}`,
	`{"kind": "channels", "ids": ["x"]}`, `{"kind": "channels", "ids": [9223372036854775808]}`, `{"kind": "channels", "ids": [-9223372036854775808]}`, `{"kind": "channels", "ids": [1.0]}`, `{"kind": "channels", "external_ids": [""]}`,
	`{"kind": "channels", "external_ids": [7]}`, `{"kind": "segment"}`, `{"kind": "segment", "segment": ""}`, `{"kind": "segment", "segment": "no such one"}`,
	`{"kind": "segment", "segment": null}`,
}

func TestParseAudience_NamesTheKeyAndWhatIsAllowed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var out strings.Builder
	for _, text := range badAudiences {
		_, err := ParseAudience([]byte(text))
		require.ErrorIs(t, err, ErrAudience, text)
		fmt.Fprintf(&out, "%s\n\t%v\n", text, err)
		_, err = b.pool.Exec(b.ctx, `SELECT belfry.check_audience('jobs', $1::text::jsonb)`, text)
		require.Error(t, err, "the database accepts %s", text)
	}
	_, err := ParseAudience([]byte(`{"kind": "everyone", "kind": "everyone"}`)) // jsonb keeps the last
	require.ErrorContains(t, err, "is given twice")
	dbtest.Golden(t, "testdata/audience_errors.golden", out.String())
}

func TestAudience_ValidateRefusesForeignFieldsAndLongLists(t *testing.T) {
	t.Parallel()
	both := Everyone()
	both.Segment = "vip"
	list := WithIDs(make([]int64, maxListed+1)...)
	for want, a := range map[string]Audience{
		"audience.segment: is not allowed with kind everyone":     both,
		"must be a list of 1 to 10000 entries; it has 10001":      list,
		"audience.platforms: has 101 entries; allowed are 1 to":   OnPlatforms(slices.Repeat([]string{"ios"}, mostPlatforms+1)...),
		"audience.kind: is required":                              {},
		"audience.latitude: NaN is not allowed":                   Within(math.NaN(), 0, 10),
		"audience.radius_m: +Inf is not allowed":                  Within(0, 0, math.Inf(1)),
		"audience: kind channels takes exactly one of":            {Kind: KindChannels},
		"audience.external_ids: \"\\xff\" is not an external id;": WithExternalIDs("\xff"),
	} {
		err := a.Validate()
		require.ErrorIs(t, err, ErrAudience)
		require.ErrorContains(t, err, want)
		_, err = json.Marshal(a)
		require.ErrorContains(t, err, want, "nor can it be written")
	}
}

func FuzzParseAudience(f *testing.F) {
	for _, text := range badAudiences {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"kind": "radius", "latitude": 1e0, "longitude": -0, "radius_m": 1E3, "platforms": ["ios"]}`))
	f.Add([]byte(`{"kind": "channels", "external_ids": ["\u0000", "\ud800"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := ParseAudience(text)
		if err != nil {
			require.ErrorIs(t, err, ErrAudience)
			return
		}
		encoded, err := json.Marshal(a)
		require.NoError(t, err)
		again, err := ParseAudience(encoded)
		require.NoError(t, err)
		require.Equal(t, a, again)
	})
}
