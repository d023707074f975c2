package words

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

func TestJobEvent_HasWordsForEveryKind(t *testing.T) {
	t.Parallel()
	of, reason := JobEvent(job.Event{Kind: job.EventThrottled, Reason: "foreground: 12", Detail: json.RawMessage(`{"after": {"throttle": "foreground"}}`)})
	require.Equal(t, Status{"Slowed", text.Wait}, of)
	require.Equal(t, "other work keeps the database busy", reason)
	of, reason = JobEvent(job.Event{Kind: job.EventAborted, Reason: "wrong text", At: time.Now()})
	require.Equal(t, Status{"Stopped", ToneStop}, of)
	require.Equal(t, "wrong text", reason)
	of, _ = JobEvent(job.Event{Kind: "later_added"})
	require.Equal(t, "Later added", of.Word)
}

func TestResult_HasWordsForEveryReason(t *testing.T) {
	t.Parallel()
	require.Equal(t, Status{"Failed, invalid address", text.Bad}, Result(outbox.ReasonDead, outbox.ReasonInvalidAddress))
	for _, r := range outbox.Reasons() {
		require.Regexp(t, `^[A-Z][a-z ]+$`, Result(r, "").Word)
	}
}
