package views

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// Each reason of an audit has a fate, a status in words, and a reason in one sentence.
func TestOutcomeOf_KnowsEachReason(t *testing.T) {
	t.Parallel()
	fates := make(map[fate]int)
	for _, reason := range append(outbox.Reasons(), outbox.ReasonPruned, outbox.ReasonOwnType) {
		if reason.Mark() {
			continue
		}
		for _, why := range append(outbox.Whys(reason), "") {
			s, sentence, of := outcomeOf(accounts.HistoryLine{Entry: accounts.Entry{Reason: reason, Why: why}})
			fates[of]++
			require.Regexp(t, `^[A-Z][a-z ]+$`, s.Word, reason)
			require.NotEmpty(t, s.Tone, reason)
			require.Regexp(t, `^[A-Z][^_]+[^.]\.$`, sentence, "%s, %s", reason, why)
			require.NotContains(t, sentence, "the channel", "pages call it a person")
		}
	}
	require.Len(t, fates, 3)
}

func TestOutcomeOf_HasTheWay(t *testing.T) {
	t.Parallel()
	line := accounts.HistoryLine{Entry: accounts.Entry{Reason: outbox.ReasonSent, LeftSince: true, Revision: new(int)}, Corrected: 1, Medium: "sms", Sender: "gate", Attempts: 3}
	s, why, of := outcomeOf(line)
	require.Equal(t, "Got it", s.Word)
	require.Equal(t, fateGot, of)
	require.Equal(t, "Sent by sms through gate in 3 attempts; the person is not in the audience now; it has the text from before the correction.", why)
	line = accounts.HistoryLine{Entry: accounts.Entry{Reason: outbox.ReasonDead, Why: outbox.ReasonPermanent}, Medium: "push", Attempts: 1}
	_, why, of = outcomeOf(line)
	require.Equal(t, fateMissed, of)
	require.Equal(t, "The provider refused it permanently (push).", why)
}

func TestOutcomeOf_NotesATextThatIsNotTheNewest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		revision, corrected int
		note                string
	}{
		{0, 0, ""}, {0, 1, "; it has the text from before the correction"}, {1, 1, ""},
		{0, 2, "; it has the text from before the 2 corrections"},
		{1, 2, "; it has the text of correction 1 of 2, which is not the newest"}, {2, 2, ""},
	} {
		line := accounts.HistoryLine{Entry: accounts.Entry{Reason: outbox.ReasonSent, Revision: &c.revision}, Corrected: c.corrected}
		_, why, _ := outcomeOf(line)
		require.Equal(t, "Sent"+c.note+".", why)
	}
	_, why, _ := outcomeOf(accounts.HistoryLine{Entry: accounts.Entry{Reason: outbox.ReasonSent}, Corrected: 2})
	require.Equal(t, "Sent.", why, "an unsent text has no revision")
}

func TestOutcomeOf_PromisesNothingOfAStoppedJob(t *testing.T) {
	t.Parallel()
	for _, status := range job.Statuses() {
		_, _, of := outcomeOf(accounts.HistoryLine{Status: status, Entry: accounts.Entry{Reason: outbox.ReasonNotReached}})
		require.Equal(t, status == job.Pending || status == job.Running || status == job.Processed, of == fateComing, status)
	}
}
