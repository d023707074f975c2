package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
)

// audienceFlags select channels. Nobody is ever selected by default: a bulk to
// everyone has to be asked for.
type audienceFlags struct {
	json        *string
	everyone    *bool
	platforms   *[]string
	near        *parsed[channels.Point]
	city        *string
	radius      *parsed[float64]
	channelIDs  *[]string
	externalIDs *[]string
	segment     *string
}

// audienceHelp is part of the help of commands that take an audience.
const audienceHelp = `The audience is one of --everyone, --platform (one or more), --near or --city with
--radius, --segment, --channel-id, --external-id, or --audience with its JSON.
--platform also narrows --near, --city and --segment.`

func addAudienceFlags(cmd *cobra.Command) audienceFlags {
	f := cmd.Flags()
	return audienceFlags{
		everyone:    f.Bool("everyone", false, "every active channel"),
		platforms:   f.StringSlice("platform", nil, "channels on any of these `PLATFORMS`, as ios,android"),
		near:        flagOf(f, "near", "LAT,LON", "channels within --radius of this point, in degrees", parsePoint),
		city:        f.String("city", "", "channels within --radius of this `CITY`, as Seoul or Seoul,KR"),
		radius:      flagOf(f, "radius", "DISTANCE", "great-circle distance for --near or --city, as 30km, 500m or 20mi", parseDistance),
		segment:     f.String("segment", "", "members of the segment `NAME`"),
		channelIDs:  f.StringSlice("channel-id", nil, "channels with these `IDS`"),
		externalIDs: f.StringArray("external-id", nil, "the channel with this external `ID`; may be repeated"),
		json:        f.String("audience", "", "the audience as `JSON`, as in belfry.jobs.audience"),
	}
}

// audience builds the audience that the flags ask for.
func (f audienceFlags) audience(a *app, cmd *cobra.Command) (channels.Audience, error) {
	var given []string
	for _, name := range []string{"everyone", "near", "city", "segment", "channel-id", "external-id", "audience"} {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	narrows := len(*f.platforms) > 0
	switch {
	case len(given) > 1:
		return channels.Audience{}, usagef("%s exclude each other; give one audience", strings.Join(given, " and "))
	case f.radius.value != nil && f.near.value == nil && *f.city == "":
		return channels.Audience{}, usagef("--radius needs --near LAT,LON or --city NAME")
	case len(given) == 0 && !narrows:
		return channels.Audience{}, usagef("an audience is needed: --everyone, --platform, --near or --city with --radius, --segment, --channel-id, --external-id or --audience")
	case f.radius.value == nil && (f.near.value != nil || *f.city != ""):
		return channels.Audience{}, usagef("%s needs --radius, as --radius 30km", given[0])
	case narrows && len(given) == 1 && given[0] != "--near" && given[0] != "--city" && given[0] != "--segment":
		return channels.Audience{}, usagef("--platform cannot be combined with %s; it narrows --near, --city and --segment, and by itself selects whole platforms", given[0])
	}
	audience, err := f.build(a, given)
	if err != nil {
		return channels.Audience{}, err
	}
	if narrows {
		audience.Platforms = *f.platforms
	}
	if err := audience.Validate(); err != nil {
		return channels.Audience{}, usagef("%s: %w", flagForAudience(err.Error()), err)
	}
	return audience, nil
}

func (f audienceFlags) build(a *app, given []string) (channels.Audience, error) {
	if len(given) == 0 {
		return channels.OnPlatforms(*f.platforms...), nil
	}
	switch given[0] {
	case "--near":
		return channels.Within(f.near.value.Latitude, f.near.value.Longitude, *f.radius.value), nil
	case "--city":
		at, err := findCity(*f.city)
		if err != nil {
			return channels.Audience{}, usagef("--city: %w", err)
		}
		a.remark("--city: %s, %s, %s", at.Name, at.Country, printer.Counted(at.Population, "inhabitant"))
		return channels.Within(at.Latitude, at.Longitude, *f.radius.value), nil
	case "--segment":
		return channels.InSegment(*f.segment), nil
	case "--channel-id":
		ids := make([]int64, 0, len(*f.channelIDs))
		for _, text := range *f.channelIDs {
			id, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				return channels.Audience{}, usagef("invalid argument %q for \"--channel-id\" flag: allowed values: whole numbers, separated by commas", text)
			}
			ids = append(ids, id)
		}
		return channels.WithIDs(ids...), nil
	case "--external-id":
		return channels.WithExternalIDs(*f.externalIDs...), nil
	case "--audience":
		audience, err := channels.ParseAudience([]byte(*f.json))
		if err != nil {
			return channels.Audience{}, usagef("--audience: %w", err)
		}
		return audience, nil
	}
	return channels.Everyone(), nil
}

// flagForAudience names the flag that gave a part of the audience, from the path
// in a message: audience.platforms.
func flagForAudience(message string) string {
	for _, pair := range [][2]string{
		{"audience.platforms", "--platform"}, {"audience.segment", "--segment"}, {"audience.ids", "--channel-id"},
		{"audience.external_ids", "--external-id"}, {"audience.radius_m", "--radius"}, {"audience.l", "--near"},
	} {
		if strings.Contains(message, pair[0]) {
			return pair[1]
		}
	}
	return "--audience"
}

// previewLimit bounds a count, which has to look at every candidate.
const previewLimit = 2 * time.Minute

// countAudience prints how many channels an audience matches now.
func (a *app) countAudience(cmd *cobra.Command, audience channels.Audience, limit time.Duration, asJSON bool) error {
	return a.withDatabase(cmd, schemaCurrent, limit, func(ctx context.Context, s settings, db *database) error {
		store, err := channels.New(s.Channels)
		if err != nil {
			return err
		}
		n, err := store.Count(ctx, db.Pool, audience)
		if err != nil {
			return err
		}
		if asJSON {
			return a.printJSON(audienceCount{audience, n})
		}
		a.printf("%d\n", n)
		a.remark("%s: %s", audience, printer.Counted(n, "active channel"))
		return nil
	})
}

// audienceCount is the JSON of a preview.
type audienceCount struct {
	Audience channels.Audience `json:"audience"`
	Channels int64             `json:"channels"`
}
