// Package alimtalk delivers messages as KakaoTalk AlimTalk through NAVER Cloud's SENS. The
// provider takes up to 100 messages in a call and says later what became of each.
//
//	POST …/messages ─► 202, per message: A000        pending, with a receipt
//	                              another code       permanent, or invalid address
//	                   400 for several messages      halves, until the bad one is alone
//	                   other answers, no answer      for all of the call, as httpcall says
//	GET …/messages/{receipt} ─► success              accepted
//	                            fail                 permanent, or invalid address
//	                            processing, anything pending
//
// Requests, headers and codes are those of NAVER Cloud's reference:
// https://api.ncloud-docs.com/docs/en/sens-alimtalk-send,
// https://api.ncloud-docs.com/docs/en/sens-alimtalk-get and
// https://api.ncloud-docs.com/docs/en/sens-overview.
//
// A channel's address is a telephone number: +82 10 1234 5678, or digits that
// Config.CountryCode completes. The message's body is the content, which must be what
// Kakao approved as the template; its title is not sent. The template's code is
// Config.TemplateCode, or the member template_code of the message's data; the data's
// member alimtalk may hold what a template asks for beside its content: title,
// headerContent, itemHighlight, item, buttons.
//
// # Invariants
//
//  1. The provider has no place for an idempotency key: two attempts are two messages. An
//     attempt is therefore repeated only as the relay decides, and unknown is said
//     whenever a call's answer was lost or could not be read, of all its messages.
//  2. A message is never refused for its neighbour's fault: a call that the provider
//     refuses as a bad request is made again in halves. It took nothing.
//  3. The provider's own failover to SMS is switched off in every message: the route
//     decides what comes next, or a person would be told twice.
//  4. Calls are signed at the time they are made; the provider refuses a timestamp that is
//     five minutes off.
//
// # What it does not promise
//
// That Receipts knows soon: results take seconds, and are gone from the provider after
// some months. Scheduled messages of the provider (reserveTime) are not used.
package alimtalk
