package compose

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// Key returns the idempotency key of a message by one medium: a UUID in lower-case text, of version 8
// (RFC 9562), from the SHA-256 of
//
//	installation (16 bytes) | job id (8, big endian) | microsecond of created (8) | channel id (8) | medium
//
// The key is the same in every attempt, after a redrive, in every relay and in a restored copy. Other
// media and other databases have different keys. created is the time of the job's or activity's
// request, which PostgreSQL stores to the microsecond. A restored database or a promoted standby may
// assign ids again that lost messages had. Without created a new message would have the key of an older
// message, and the provider would drop it as a duplicate.
func Key(installation [16]byte, jobID int64, created time.Time, channelID int64, medium string) string {
	b := make([]byte, 0, 64)
	b = append(b, installation[:]...)
	for _, n := range []int64{jobID, created.UnixMicro(), channelID} {
		b = binary.BigEndian.AppendUint64(b, uint64(n)) //nolint:gosec // keeps the bits
	}
	sum := sha256.Sum256(append(b, medium...))
	id := uuid.UUID(sum[:16])
	id[6] = id[6]&0x0f | 0x80 // version 8
	id[8] = id[8]&0x3f | 0x80 // variant of RFC 9562
	return id.String()
}
