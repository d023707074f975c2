package content

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
)

// AudienceChoice selects channels. The default is no audience: a bulk to everyone must be explicit.
type AudienceChoice struct {
	Everyone    bool        `flag:"everyone" help:"every active channel"`
	Platforms   []string    `flag:"platform" label:"PLATFORMS" values:"platforms" help:"channels on any of these, such as ios,android"`
	Near        *Point      `flag:"near" label:"LAT,LON" help:"channels within --radius of this point, in degrees"`
	Radius      *Distance   `flag:"radius" label:"DISTANCE" help:"great-circle distance for --near, such as 30km, 500m or 20mi"`
	Segment     *string     `flag:"segment" label:"NAME" values:"channels segment list" help:"members of this segment"`
	ChannelIDs  []int64     `flag:"channel-id" label:"IDS" help:"channels with these ids" allowed:"whole numbers, separated by commas"`
	ExternalIDs []string    `flag:"external-id" label:"ID" list:"one" help:"the channel with this external ID; may be repeated"`
	JSON        *AudienceOf `flag:"audience" label:"JSON" help:"the audience as in belfry.jobs.audience"`
}

// AudienceHelp is part of the help of operations that take an audience.
const AudienceHelp = `The audience is one of --everyone, --platform (one or more), --near with --radius,
--segment, --channel-id, --external-id, or --audience with its JSON. --platform also
narrows --near and --segment.`

// Given reports whether any flag of the audience is set.
func (c AudienceChoice) Given() bool {
	return len(c.kinds()) > 0 || len(c.Platforms) > 0 || c.Radius != nil
}

// kinds lists the given flags that select an audience. They exclude each other.
func (c AudienceChoice) kinds() []string {
	var given []string
	for _, kind := range []struct {
		flag  string
		given bool
	}{
		{"--everyone", c.Everyone}, {"--near", c.Near != nil}, {"--segment", c.Segment != nil},
		{"--channel-id", c.ChannelIDs != nil}, {"--external-id", c.ExternalIDs != nil}, {"--audience", c.JSON != nil},
	} {
		if kind.given {
			given = append(given, kind.flag)
		}
	}
	return given
}

// Audience returns the audience that the flags select.
func (c AudienceChoice) Audience() (chosen channels.Audience, err error) {
	given, narrows := c.kinds(), len(c.Platforms) > 0
	switch {
	case len(given) > 1:
		return chosen, operation.Invalid("", "%s exclude each other; give one audience", strings.Join(given, " and "))
	case c.Radius != nil && c.Near == nil:
		return chosen, operation.Invalid("", "--radius needs --near LAT,LON")
	case len(given) == 0 && !narrows:
		return chosen, operation.Invalid("",
			"an audience is required: --everyone, --platform, --near with --radius, --segment, --channel-id, --external-id or --audience")
	case c.Radius == nil && c.Near != nil:
		return chosen, operation.Invalid("", "--near needs --radius, such as --radius 30km")
	case narrows && len(given) == 1 && c.Near == nil && c.Segment == nil:
		return chosen, operation.Invalid("",
			"--platform cannot be combined with %s; it narrows --near and --segment, and by itself selects whole platforms", given[0])
	}
	chosen = c.build()
	if narrows {
		chosen.Platforms = c.Platforms
	}
	if err := chosen.Validate(); err != nil {
		return chosen, operation.Invalid(audienceParam(err.Error()), "%s", err)
	}
	return chosen, nil
}

func (c AudienceChoice) build() channels.Audience {
	switch {
	case c.Near != nil:
		return channels.Within(c.Near.Latitude, c.Near.Longitude, float64(*c.Radius))
	case c.Segment != nil:
		return channels.InSegment(*c.Segment)
	case c.ChannelIDs != nil:
		return channels.WithIDs(c.ChannelIDs...)
	case c.ExternalIDs != nil:
		return channels.WithExternalIDs(c.ExternalIDs...)
	case c.JSON != nil:
		return channels.Audience(*c.JSON)
	case c.Everyone:
		return channels.Everyone()
	}
	return channels.OnPlatforms(c.Platforms...)
}

// audienceParam returns the parameter for a part of the audience, by the path in a message, such as
// audience.platforms.
func audienceParam(message string) string {
	for _, pair := range [][2]string{
		{"audience.platforms", "platform"}, {"audience.segment", "segment"}, {"audience.ids", "channel_id"},
		{"audience.external_ids", "external_id"}, {"audience.radius_m", "radius"}, {"audience.l", "near"},
	} {
		if strings.Contains(message, pair[0]) {
			return pair[1]
		}
	}
	return "audience"
}

// Distance is a great-circle distance, in metres.
type Distance float64

// MaxDistance is half the earth's circumference: no two places are farther apart.
const MaxDistance Distance = 20_037_509

// UnmarshalText reads 30km, 500m or 12.5mi. A number without a unit is an error, because 30 metres and
// 30 kilometres are very different audiences.
func (d *Distance) UnmarshalText(text []byte) error {
	for _, unit := range []struct {
		name   string
		metres float64
	}{{"km", 1000}, {"mi", 1609.344}, {"m", 1}} { // "km" before its suffix "m"
		number, ok := strings.CutSuffix(strings.ToLower(strings.TrimSpace(string(text))), unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if metres := Distance(n * unit.metres); err == nil && metres >= 1 && metres <= MaxDistance {
			*d = metres
			return nil
		}
		break
	}
	return &operation.NotAllowedError{Allowed: "1m to 20037.509km, with the unit m, km or mi, such as 30km"}
}

// MarshalText returns the distance in metres.
func (d Distance) MarshalText() ([]byte, error) {
	return []byte(strconv.FormatFloat(float64(d), 'f', -1, 64) + "m"), nil
}

// Point is a place on the earth.
type Point channels.Point

// UnmarshalText reads LATITUDE,LONGITUDE in degrees.
func (p *Point) UnmarshalText(text []byte) error {
	first, second, ok := strings.Cut(string(text), ",")
	latitude, err1 := strconv.ParseFloat(strings.TrimSpace(first), 64)
	longitude, err2 := strconv.ParseFloat(strings.TrimSpace(second), 64)
	within := math.Abs(latitude) <= 90 && math.Abs(longitude) <= 180 // false for NaN
	if !ok || err1 != nil || err2 != nil || !within {
		return &operation.NotAllowedError{Allowed: "LATITUDE,LONGITUDE in degrees, -90 to 90 and -180 to 180, such as 37.57,126.98"}
	}
	*p = Point{Latitude: latitude, Longitude: longitude}
	return nil
}

// MarshalText returns the format of UnmarshalText.
func (p Point) MarshalText() ([]byte, error) {
	degrees := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	return []byte(degrees(p.Latitude) + "," + degrees(p.Longitude)), nil
}

// AudienceOf is an audience by its JSON.
type AudienceOf channels.Audience

// JSONObject is a JSON object.
type JSONObject json.RawMessage

// UnmarshalText reads an audience. Its errors do not name the parameter; the caller adds it.
func (a *AudienceOf) UnmarshalText(text []byte) error {
	audience, err := channels.ParseAudience(text)
	*a = AudienceOf(audience)
	if err != nil {
		if of, is := strings.CutPrefix(err.Error(), channels.ErrAudience.Error()+": "); is {
			return errors.New(of)
		}
	}
	return err
}

// MarshalJSON returns the audience as JSON.
func (a AudienceOf) MarshalJSON() ([]byte, error) { return json.Marshal(channels.Audience(a)) }

// UnmarshalText reads a JSON object.
func (o *JSONObject) UnmarshalText(text []byte) error {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil || object == nil {
		return &operation.NotAllowedError{Allowed: "JSON objects"}
	}
	*o = slices.Clone(text)
	return nil
}

// MarshalJSON returns the object.
func (o JSONObject) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// IsObject marks a value that is a JSON object.
func (JSONObject) IsObject() {}

// IsObject marks a value that is a JSON object.
func (AudienceOf) IsObject() {}
