// Package snstest has a small server that speaks the protocol of Amazon SNS, as far as a publisher
// needs it. The server checks the documented limits of each request, and keeps the messages in files,
// so that it can be killed and started again. It has no subscriptions.
package snstest
