package channels

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed queries.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	relationColumns, bound, lowestID, estimateRows, pageEveryone, pagePlatforms, pageRadius,
	sliceIDs, segmentIDs, pageChannels, sliceChannels, segmentChannels, radiusCandidates,
	resolveExternalIDs, listedWithout, segmentSize, estimateSegment, countEveryone,
	countRadius, countIDs, countExternalIDs, countSegment, relationFacts, relationSecured, recipientsRecorded, recipientsRecord,
	preferIndexes, explainPage, explainExternalIDs, explainCircle, sampleKeys, segmentCreate,
	segmentMembers, segmentDrop, segmentList, segmentLock, segmentStage, segmentResolveIDs,
	segmentResolveExternalIDs, segmentUnknown, segmentDeleteOthers, segmentDelete,
	segmentInsert, segmentRecord, channelsInspect, recipients, recipientsRange, channelPlace, optOuts, optOutsRange,
	invalidAddresses, invalidAddressesRange, optOutRecord, optOutRemove, optOutEvent, optInEvent,
	channelBlank, channelForget, categoryList, categoryAdd, actorSet, categorySet, categoryGet string
}
