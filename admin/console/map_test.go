package console_test

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// jobTo enqueues a job for an audience, and returns its page as a viewer sees it.
func (h *house) jobTo(t *testing.T, a channels.Audience) page {
	t.Helper()
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "Hello", Audience: a})
	require.NoError(t, err)
	p := h.as(t, "viewer").get(t, "/jobs/"+text.Int(id))
	require.Equal(t, http.StatusOK, p.status, p.text)
	return p
}

// drawn are the elements of a page that have a class.
func (p page) drawn(class string) (found []*html.Node) {
	p.each(func(n *html.Node) {
		if n.Type == html.ElementNode && attr(n, "class") == class {
			found = append(found, n)
		}
	})
	return found
}

// number is an attribute that is one.
func number(t *testing.T, n *html.Node, name string) float64 {
	t.Helper()
	value, err := strconv.ParseFloat(attr(n, name), 64)
	require.NoError(t, err, "%s of %s", name, n.Data)
	return value
}

// A radius is a circle on a map, with the places around it, true to scale at any latitude and
// across the 180° meridian, and it is said in words.
func TestConsole_ARadiusIsOnAMap(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for _, one := range []struct {
		lat, lon, metres float64
		about, name, bar string
		x, y             float64 // where the name's place is, in the circle's radius from its centre
	}{
		{37.566, 126.9784, 30e3, "Active channels within 30 km of 37.566, 126.9784. The centre is Seoul, KR.", "Incheon", "20 km", -0.8, 0.35},
		{-17, -179.5, 300e3, "km south-", "Suva", "200 km", -0.73, 0.43},
		{69.6489, 18.9551, 600e3, "The centre is Tromsø, NO.", "Murmansk", "500 km", 0.93, -0.04},
		{-48.9, -123.4, 500e3, "No place with 15,000 inhabitants lies within the circle.", "", "200 km", 0, 0},
	} {
		p := h.jobTo(t, channels.Within(one.lat, one.lon, one.metres))
		require.Contains(t, p.text, one.about)
		require.Contains(t, p.text, "A circle with a radius of ", "in the text alternative")
		circle, bar := p.drawn("circle"), p.drawn("bar")
		require.Len(t, circle, 1)
		require.Len(t, bar, 1)
		require.Contains(t, p.text, one.bar+" Places: GeoNames")
		radius := number(t, circle[0], "r")
		_, length, _ := strings.Cut(attr(bar[0], "d"), "h")
		long, err := strconv.ParseFloat(strings.TrimSuffix(length, "v-6"), 64)
		require.NoError(t, err)
		says, err := strconv.ParseFloat(strings.TrimSuffix(one.bar, " km"), 64)
		require.NoError(t, err)
		require.InDelta(t, says*1000/one.metres, long/radius, 0.01, "the bar is as long as it says")
		for _, n := range p.drawn("inside") {
			require.LessOrEqual(t, math.Hypot(number(t, n, "cx")-160, number(t, n, "cy")-160), radius+0.2)
		}
		for _, n := range p.drawn("outside") {
			require.Greater(t, math.Hypot(number(t, n, "cx")-160, number(t, n, "cy")-160), radius-0.2)
		}
		if one.name == "" {
			require.Empty(t, p.drawn("inside"))
			continue
		}
		require.Contains(t, p.text, "The largest places on the map")
		found := false
		p.each(func(n *html.Node) {
			if n.Data != "text" || n.FirstChild == nil || n.FirstChild.Data != one.name {
				return
			}
			found = true
			require.InDelta(t, one.x, (number(t, n, "x")-160)/radius, 0.13, one.name)
			require.InDelta(t, one.y, (number(t, n, "y")-160)/radius, 0.13, one.name)
		})
		require.True(t, found, one.name)
	}
}

// What is no radius is words, and the whole earth is a circle.
func TestConsole_AnAudienceIsInWords(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.exec(t, `INSERT INTO belfry.segments (name) VALUES ('vip')`)
	for words, a := range map[string]channels.Audience{
		"Every active channel.":                              channels.Everyone(),
		"Active channels on ios, android.":                   channels.OnPlatforms("ios", "android"),
		"Of 2 listed external ids those that are active.":    channels.WithExternalIDs("kim@example.org", "lee"),
		"Active channels in segment vip.":                    channels.InSegment("vip"),
		"places with at least 15,000 inhabitants lie within": channels.Within(90, 0, 20037509),
	} {
		p := h.jobTo(t, a)
		require.Contains(t, p.text, words)
		require.NotContains(t, p.text, "kim@example.org")
		require.Equal(t, a.Kind == channels.KindRadius, len(p.drawn("circle")) == 1)
	}
	require.Contains(t, h.jobTo(t, channels.Within(90, 0, 20037509)).text, "24,323 places")
	require.Len(t, h.jobTo(t, channels.Within(90, 0, 1)).drawn("circle"), 1)
}
