// Package inbox serves the notification centre to its readers: the people who receive notifications. It has no
// operator's access and no operator's data. Its statements call the SQL functions of the role profile inbox, so that
// the database role needs no right on a table.
//
//	GET  /v1/inbox               a page of notifications: before, limit, archived, locale
//	GET  /v1/inbox/count         the counts of unread and unseen notifications; 100 means 100 or more
//	POST /v1/inbox/seen          marks the list as opened
//	POST /v1/inbox/read          {"ids": [83], "read": true} or {"all": true}
//	POST /v1/inbox/archive       {"ids": [83], "archived": true}
//	GET  /v1/inbox/preferences   opt-outs by category and medium
//	PUT  /v1/inbox/preferences   {"preferences": [{"category": "popular_content", "medium": "push", "opted_out": true}]}
//	GET  /v1/stream, /v1/ws      new notifications at once (package outbox/inbox/live)
//	GET  /v1/openapi.json        the OpenAPI document, without a token
//	GET  /v1/bell.js             a script for web pages, without a token
//
// # Tokens
//
// A request has `Authorization: Bearer TOKEN`. The token is a JWT that the application signs for one reader:
//
//	header  kid  the id of a configured key
//	claims  aud  the configured audience, alone
//	        sub  the id of the reader's channel, or its external id
//	        exp  at most an hour ahead; iat and nbf are checked if they are present, each with a leeway of 30 s
//
// # Invariants
//
//  1. A request reads and changes the channel of its token and no other. No parameter names a channel.
//  2. The algorithm of a signature is the configured algorithm of the key. The token's header cannot select another,
//     and a key has one algorithm.
//  3. A 401 names the class of the problem. It contains nothing of the token and of keys. Claims are examined after
//     the signature.
//  4. Only origins in the configuration can read responses in a browser. There are no cookies, and no response
//     permits credentials.
//  5. A reader beyond the rate limit reaches no database. The limiter's memory has a bound.
//  6. Every statement has a deadline. A reader has at most three requests in flight, and one mark; all marks leave half
//     of the pool to reads.
//  7. The response to a bad request repeats no value, and has at most 4 kB. A page has at most about 1 MB.
//
// Responses are JSON with nosniff. Titles and bodies are text: a client that renders them as HTML must escape them.
//
// Rate limits are per process. A token is valid until it expires: there is no revocation.
package inbox
