package channels

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Kind says how an audience selects channels.
type Kind string

// The kinds of audience; the values are those of audience.kind in jobs.
const (
	KindEveryone  Kind = "everyone"
	KindPlatforms Kind = "platforms"
	KindRadius    Kind = "radius"
	KindChannels  Kind = "channels"
	KindSegment   Kind = "segment"
)

// kinds lists the kinds for messages.
const kinds = "everyone, platforms, radius, channels, segment"

// maxListed is how many ids or external ids an audience may list. Longer lists
// are segments.
const maxListed = 10000

// Audience is the rule that selects a job's channels: a value with a kind and
// the fields of that kind, never SQL. Only active channels match any audience.
// The zero value is invalid. The constructors return valid audiences for valid
// arguments; Validate checks an audience. Its JSON is the content of jobs.audience.
type Audience struct {
	Kind Kind
	// Platforms has at least one platform for kind platforms. Platforms restrict kinds radius and
	// segment; none means any platform.
	Platforms []string
	// Latitude and Longitude, in WGS 84 degrees, and RadiusM, in great-circle metres
	// from 1 to 20,037,509 (half the earth's circumference), the edge included,
	// belong to kind radius.
	Latitude, Longitude, RadiusM float64
	// IDs or ExternalIDs, exactly one of them, 1 to 10,000 entries, belongs to kind
	// channels. Entries without a channel select no channel.
	IDs         []int64
	ExternalIDs []string `mask:"text"`
	// Segment is the name of kind segment.
	Segment string
}

// Everyone selects every active channel.
func Everyone() Audience {
	return Audience{Kind: KindEveryone}
}

// OnPlatforms selects the channels on any of the platforms.
func OnPlatforms(platforms ...string) Audience {
	return Audience{Kind: KindPlatforms, Platforms: platforms}
}

// Within selects the channels with a location within radiusM metres of a point
// given in degrees, across the 180° meridian and the poles where need be.
func Within(latitude, longitude, radiusM float64) Audience {
	return Audience{Kind: KindRadius, Latitude: latitude, Longitude: longitude, RadiusM: radiusM}
}

// WithIDs selects the channels with the listed ids.
func WithIDs(ids ...int64) Audience {
	return Audience{Kind: KindChannels, IDs: ids}
}

// WithExternalIDs selects the channels with the listed external ids.
func WithExternalIDs(externalIDs ...string) Audience {
	return Audience{Kind: KindChannels, ExternalIDs: externalIDs}
}

// erased stands in a list of external ids for an erased person who was listed alone. It selects nobody: a user may have
// the same external id.
const erased = "(erased)"

// external returns the external ids to look up.
func (a Audience) external() []string {
	return slices.DeleteFunc(slices.Clone(a.ExternalIDs), func(id string) bool { return id == erased })
}

// InSegment selects the members of the named segment.
func InSegment(name string) Audience {
	return Audience{Kind: KindSegment, Segment: name}
}

var (
	platformName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,31}$`) })
	segmentName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`) })
)

func audienceError(key, format string, args ...any) error {
	if key != "" {
		key = "." + key
	}
	return fmt.Errorf("%w%s: %s", ErrAudience, key, fmt.Sprintf(format, args...))
}

// Validate returns an ErrAudience naming the first bad key and what is allowed.
// It judges the value alone: whether the platforms and the segment exist is for
// the database, which checks each job as it is enqueued.
func (a Audience) Validate() error {
	if err := a.foreignField(); err != nil {
		return err
	}
	switch a.Kind {
	case KindEveryone:
		return nil
	case KindPlatforms:
		if len(a.Platforms) == 0 {
			return audienceError("platforms", "must be a list of at least one platform")
		}
		return a.validatePlatforms()
	case KindRadius:
		return a.validateCircle()
	case KindChannels:
		return a.validateList()
	case KindSegment:
		if !segmentName().MatchString(a.Segment) {
			return audienceError("segment",
				"%s is not a segment's name; allowed values: 1 to 63 letters, digits, _ . and -, the first a letter or digit", Clip(a.Segment))
		}
		return a.validatePlatforms()
	}
	return kindError(string(a.Kind))
}

func kindError(kind string) error {
	if kind == "" {
		return audienceError("kind", "is required; allowed values: %s", kinds)
	}
	return audienceError("kind", "%s is not allowed; allowed values: %s", Clip(kind), kinds)
}

// foreignField refuses a field that the kind does not have: it would otherwise
// be ignored, and more people reached than the caller meant.
func (a Audience) foreignField() error {
	shape, ok := shapes[a.Kind]
	if !ok {
		return kindError(string(a.Kind))
	}
	set := map[string]bool{
		"platforms": len(a.Platforms) > 0, "latitude": a.Latitude != 0, "longitude": a.Longitude != 0,
		"radius_m": a.RadiusM != 0, "ids": len(a.IDs) > 0, "external_ids": len(a.ExternalIDs) > 0, "segment": a.Segment != "",
	}
	for _, key := range allKeys {
		if set[key] && !shape.allows(key) {
			return audienceError(key, "is not allowed with kind %s; allowed keys: %s", a.Kind, shape.list())
		}
	}
	return nil
}

// mostPlatforms bounds the list of an audience, which each reading of its job repeats.
const mostPlatforms = 100

func (a Audience) validatePlatforms() error {
	if len(a.Platforms) > mostPlatforms {
		return audienceError("platforms", "has %d entries; allowed are 1 to %d", len(a.Platforms), mostPlatforms)
	}
	for _, p := range a.Platforms {
		if !platformName().MatchString(p) {
			return audienceError("platforms",
				"%s is not a platform's name; allowed values: 1 to 32 letters, digits, _ and -, the first a letter", Clip(p))
		}
	}
	return nil
}

func (a Audience) validateCircle() error {
	for _, n := range []struct {
		key              string
		value, low, high float64
		unit             string
	}{
		{"latitude", a.Latitude, -90, 90, "degrees"},
		{"longitude", a.Longitude, -180, 180, "degrees"},
		{"radius_m", a.RadiusM, 1, maxRadiusM, "metres"},
	} {
		if math.IsNaN(n.value) || n.value < n.low || n.value > n.high {
			return audienceError(n.key, "%v is not allowed; allowed values: %.0f to %.0f %s", n.value, n.low, n.high, n.unit)
		}
	}
	return a.validatePlatforms()
}

func (a Audience) validateList() error {
	if (len(a.IDs) > 0) == (len(a.ExternalIDs) > 0) {
		return audienceError("", "kind channels takes exactly one of: ids, external_ids")
	}
	key, n := "ids", len(a.IDs)
	if n == 0 {
		key, n = "external_ids", len(a.ExternalIDs)
	}
	if n > maxListed {
		return audienceError(key, "must be a list of 1 to %d entries; it has %d. Longer lists: fill a segment and use kind segment", maxListed, n)
	}
	for _, id := range a.IDs {
		if id == math.MinInt64 { // walks begin after it
			return audienceError("ids", "%d is not a channel id; allowed values: whole numbers from -9223372036854775807 to 9223372036854775807", id)
		}
	}
	for _, id := range a.ExternalIDs {
		if n := utf8.RuneCountInString(id); n < 1 || n > 200 || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
			return audienceError("external_ids", "%s is not an external id; allowed values: texts of 1 to 200 characters", Clip(id))
		}
	}
	return nil
}

// Clip quotes the first 60 characters of a value for a message.
func Clip(s string) string {
	if runes := []rune(s); len(runes) > 60 {
		return strconv.Quote(string(runes[:60])) + "…"
	}
	return strconv.Quote(s)
}

// String describes the audience to people: "within 30 km of 37.57, 126.98 on
// ios". Lists are counted, not spelled out.
func (a Audience) String() string {
	on := ""
	if len(a.Platforms) > 0 {
		on = "on " + strings.Join(a.Platforms, ", ")
	}
	text := ""
	switch a.Kind {
	case KindEveryone:
		text = "everyone"
	case KindPlatforms:
	case KindRadius:
		text = fmt.Sprintf("within %s of %s, %s", distance(a.RadiusM), number(a.Latitude), number(a.Longitude))
	case KindChannels:
		text = plural(len(a.IDs), "listed channel")
		if len(a.ExternalIDs) > 0 {
			text = plural(len(a.ExternalIDs), "listed external id")
		}
	case KindSegment:
		text = "segment " + a.Segment
	default:
		return "no audience"
	}
	return strings.TrimSpace(text + " " + on)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func number(v float64) string {
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func distance(m float64) string {
	if m >= 1000 {
		return number(m/1000) + " km"
	}
	return number(m) + " m"
}
