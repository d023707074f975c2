package redislist

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/outbox"
)

// itemOf is a copy as the server has it: push/job/channel/lane. The push has twelve digits, by
// which scripts read it without a pattern.
func itemOf(c outbox.Copy, lane string) string {
	return fmt.Sprintf("%012d/%d/%d/%s", c.Push, c.JobID, c.ChannelID, lane)
}

// parse reads an item. One that nobody here has written is an error.
func parse(item string) (c outbox.Copy, err error) {
	push, rest, _ := strings.Cut(item, "/")
	job, rest, _ := strings.Cut(rest, "/")
	channel, _, ok := strings.Cut(rest, "/")
	for _, n := range []struct {
		text string
		to   *int64
	}{{push, &c.Push}, {job, &c.JobID}, {channel, &c.ChannelID}} {
		if *n.to, err = strconv.ParseInt(n.text, 10, 64); err != nil || !ok {
			return outbox.Copy{}, fmt.Errorf("%q is no push/job/channel/lane", item)
		}
	}
	return c, nil
}
