// Package oidc signs people in through a provider: OpenID Connect, by the authorization code flow
// with PKCE. It speaks with the provider and says whom it named, and with what role; package api
// has the routes, and package admin the session.
//
//	browser               belfry                           provider
//	   │ GET login/oidc      │                                 │
//	   ├────────────────────►│ Begin: state, nonce, challenge  │
//	   │◄── cookie, 302 ─────┤                                 │
//	   ├──────────────────────────────────────────────────────►│ who is it?
//	   │◄───────────────────────────────── 302, code and state ┤
//	   │ GET …/callback      │                                 │
//	   ├────────────────────►│ Finish: code and verifier ─────►│
//	   │                     │◄────────────────────── ID token ┤
//	   │                     │ userinfo, if it lacks a claim ─►│
//	   │◄── session, 303 ────┤ Person                          │
//
// # What a sign-in is known by
//
// Begin draws a secret, which the browser alone keeps, in a cookie of ten minutes. State, nonce and
// verifier are HMACs under that secret of what they are for, and of the rest of the cookie. So
// every node finishes what another began, without a key between them; nothing is stored for
// whoever begins; and neither the time nor the way back can be changed afterwards. That a state
// opens one session is for package admin to see to.
//
// # Invariants
//
//  1. A Person was named by an ID token that the issuer signed, with a key and an algorithm that it
//     has published, for this client alone, not expired, for the nonce of this browser's sign-in.
//     An unsigned token, or one signed with the client's own secret, is never taken. What it does
//     not say, and nothing else, is taken from the userinfo endpoint where that is asked for, and
//     only of the same subject.
//  2. A code is handed over only for a request that has the state of its own browser's cookie, and
//     only if it names no other issuer (RFC 9207).
//  3. What is sent to the provider goes to where the issuer's own document says, by TLS, and is
//     never sent on by a redirect. On this machine it may go without TLS.
//  4. Who has no role by the claim has none: there is no default.
//  5. The way back is a path of belfry's own.
//
// # When the provider does not answer
//
// Nothing is asked of it before the first sign-in. Each question has a deadline, and a failure is
// the answer to all who ask within the next seconds. What it has published is kept until a question
// fails; its keys are asked for again when a token has one that is not known. Whoever signs in
// otherwise is not concerned.
//
// # What it does not promise
//
// Whoever loses a group, or the account, keeps the session until it ends: the provider is asked at
// sign-ins only. Signing out here does not sign out there.
package oidc
