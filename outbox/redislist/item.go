package redislist

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/outbox"
)

// itemOf encodes a copy as push/job/channel/lane. The push has twelve digits, so that scripts can read
// it without a pattern.
func itemOf(c outbox.Copy, lane string) string {
	return fmt.Sprintf("%012d/%d/%d/%s", c.Push, c.JobID, c.ChannelID, lane)
}

// parse decodes an item. It returns an error for any other text.
func parse(item string) (c outbox.Copy, err error) {
	push, rest, _ := strings.Cut(item, "/")
	job, rest, _ := strings.Cut(rest, "/")
	channel, _, ok := strings.Cut(rest, "/")
	for _, n := range []struct {
		text string
		to   *int64
	}{{push, &c.Push}, {job, &c.JobID}, {channel, &c.ChannelID}} {
		if *n.to, err = strconv.ParseInt(n.text, 10, 64); err != nil || !ok {
			return outbox.Copy{}, fmt.Errorf("%q does not have the form push/job/channel/lane", item)
		}
	}
	return c, nil
}
