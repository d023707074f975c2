package content_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/content"
)

func TestDistance(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{
		"30km": 30_000, "30 km": 30_000, "1.5KM": 1500, "500m": 500, "20mi": 32_186.88, "1m": 1, "20037.509km": 20_037_509, " 2km ": 2000,
	} {
		var got content.Distance
		err := got.UnmarshalText([]byte(text))
		require.NoError(t, err, text)
		require.InDelta(t, want, float64(got), 1e-6, text)
	}
	for _, text := range []string{"", "30", "km", "0m", "0.5m", "-3km", "30 miles", "20038km", "NaNkm", "Infkm", "1e9km", "30km2"} {
		err := new(content.Distance).UnmarshalText([]byte(text))
		require.ErrorContains(t, err, "allowed values: 1m to 20037.509km", text)
	}
}

func TestPoint(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]content.Point{
		"37.57,126.98": {Latitude: 37.57, Longitude: 126.98},
		" -90 , 180 ":  {Latitude: -90, Longitude: 180},
		"0,-0.5":       {Latitude: 0, Longitude: -0.5},
	} {
		var got content.Point
		err := got.UnmarshalText([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "37.57", "37.57;126.98", "91,0", "0,181", "NaN,0", "0,NaN", "1,2,3", "a,b"} {
		err := new(content.Point).UnmarshalText([]byte(text))
		require.ErrorContains(t, err, "LATITUDE,LONGITUDE", text)
	}
}
