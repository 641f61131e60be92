// Package sqstest has a small server that speaks the protocol of Amazon SQS, as far as a publisher
// needs it. The server checks the documented limits of each request, and keeps the messages in files,
// so that it can be killed and started again.
package sqstest
