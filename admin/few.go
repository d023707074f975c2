package admin

import (
	"maps"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
)

// What who reads no contents may find out of where people are: nothing of an audience within less than
// leastRadius metres, and of no more than mostHidden people how many they are.
const (
	mostHidden  = 9
	leastRadius = 500
)

// mayFind refuses an audience that finds out where one person is, to who reads no contents.
func (r Role) mayFind(a channels.Audience) error {
	if r.readsContents() || a.Kind != channels.KindRadius || a.RadiusM >= leastRadius {
		return nil
	}
	return invalid("radius", "is too small; allowed values for viewers and authors: %dm or more", leastRadius)
}

// coarse is a count as the role may read it. atMost is what a count that is as low may be less than,
// too; 0: counts are what they are.
func (r Role) coarse(n int64) (shown, atMost int64) {
	if r.readsContents() {
		return n, 0
	}
	return max(n, mostHidden), mostHidden
}

// coarsePart is coarse of a part of a count, which may be none.
func coarsePart(n int64) int64 {
	if n == 0 {
		return 0
	}
	return max(n, mostHidden)
}

// atMostText tells a count that may be less.
func atMostText(n, atMost int64) string {
	if atMost > 0 && n <= atMost {
		return "fewer than " + printer.Grouped(atMost+1)
	}
	return printer.Grouped(n)
}

// coarsen takes out of a preview what finds out where one person is, for who reads no contents: whose
// samples they are and, where few are meant, everything that is told of them.
func (out *jobPreview) coarsen(r Role) {
	all := out.Channels
	if out.Channels, out.AtMost = r.coarse(all); out.AtMost == 0 {
		return
	}
	out.LookedAt = max(out.LookedAt, mostHidden)
	for i := range out.Samples {
		out.Samples[i].ChannelID = 0
	}
	counts := []*int64{&out.NoAddress, &out.InvalidAddress, &out.OptedOut, &out.BadContent, &out.QuietHours, &out.Capped}
	tallies := []map[string]int64{out.Platforms, out.Locales, out.Media, out.MissingAttributes}
	if all <= mostHidden {
		out.Samples = nil
		for _, n := range counts {
			*n = 0
		}
		for _, tally := range tallies {
			clear(tally)
		}
		return
	}
	for _, n := range counts {
		*n = coarsePart(*n)
	}
	for _, tally := range tallies {
		for name := range maps.Clone(tally) {
			tally[name] = coarsePart(tally[name])
		}
	}
}
