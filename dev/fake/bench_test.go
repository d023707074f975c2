package fake_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/fake"
)

// BenchmarkServer is calls by HTTP/1.1 with new keys, client and server in one process.
func BenchmarkServer(b *testing.B) {
	s, err := fake.Start(b.Context(), fake.DefaultConfig())
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	require.NoError(b, s.SetFaults(faults("{for: all, status: 503, share: 0.05}", "{for: sms, latency: 1ms, share: 0.01}")))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	var n atomic.Int64
	b.SetParallelism(16)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			body := `{"to":"+99900000000","text":"there"}`
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.URL()+"/sms", strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			r.Header.Set("Idempotency-Key", fmt.Sprint(n.Add(1)))
			r.Header.Set("Authorization", fmt.Sprint("Bearer ", s.Senders()[3].Settings["secret"]))
			response, err := client.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	require.Equal(b, n.Load(), s.Summary().Of(fake.SMS).Calls)
}
