package redisstream

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

const (
	// reclaimPage is how many idle entries one look finds, reclaimable how many are seen in a tick.
	reclaimPage = 500
	reclaimable = 100 * reclaimPage
	// suspicious is from how many deliveries on an entry is kept in dead, if its message is DEAD.
	suspicious = 3
)

// chosen is which of the live consumers takes over an idle entry: by rendezvous hashing, the one
// whose weight for it is the highest. A consumer that comes or goes changes the choice for its
// own part only. The number of deliveries is hashed as well: what one consumer does not get
// done is another's next.
func chosen(id string, deliveries int64, alive []string) (best string) {
	var highest uint64
	text := make([]byte, 0, 128)
	for _, name := range alive {
		text = append(append(text[:0], id...), ' ')
		text = append(strconv.AppendInt(text, deliveries, 10), ' ')
		sum := sha256.Sum256(append(text, name...))
		weight := binary.BigEndian.Uint64(sum[:8])
		if best == "" || weight > highest || weight == highest && name < best {
			best, highest = name, weight
		}
	}
	return best
}
