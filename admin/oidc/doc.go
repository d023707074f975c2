// Package oidc signs users in through an OpenID Connect provider with the authorization code flow
// and PKCE. It returns the name, the identity and the groups of a user. Package api has the routes
// and maps groups to roles, and package admin opens the session.
//
//	browser               belfry                           provider
//	   │ GET login/oidc      │                                 │
//	   ├────────────────────►│ Begin: state, nonce, challenge  │
//	   │◄── cookie, 302 ─────┤                                 │
//	   ├──────────────────────────────────────────────────────►│ user signs in
//	   │◄───────────────────────────────── 302, code and state ┤
//	   │ GET …/callback      │                                 │
//	   ├────────────────────►│ Finish: code and verifier ─────►│
//	   │                     │◄────────────────────── ID token ┤
//	   │                     │ userinfo, if configured ───────►│
//	   │◄── session, 303 ────┤ Person                          │
//
// The cookie holds a random secret, the start time and the return path. State, nonce and PKCE
// verifier are HMACs with the cookie as the key. Every node can therefore finish a sign-in that
// another node began, belfry stores nothing for a pending sign-in, and a changed cookie has a
// different state. Package admin accepts each state once.
//
// # Invariants
//
//  1. A Person comes from an ID token that the issuer signed with a published key and an asymmetric
//     algorithm, for this client, not expired, with the nonce of this browser's sign-in. Claims that
//     the ID token lacks come from the userinfo endpoint if it is enabled and returns the same subject.
//  2. A code is exchanged only if the request has the state of the browser's cookie and does not name
//     another issuer (RFC 9207).
//  3. Requests to the provider use TLS, except to this machine, and follow no redirects. Each has a
//     deadline and a bounded response.
//  4. The return path is a path of belfry.
//
// # Availability
//
// The provider is not contacted before the first sign-in. Its discovery document is cached for an
// hour, or until an ID token fails verification. The library caches its keys and fetches them
// again for an unknown key id. Other ways of signing in do not depend on the provider.
//
// # Limits
//
// The provider is contacted at sign-in only. A user who loses a group or the account there keeps
// the session until it ends. Signing out of belfry does not sign out of the provider.
package oidc
