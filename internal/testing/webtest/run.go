package webtest

import (
	"slices"
	"testing"
)

// streaming are the tests that need a handler with a connection to its client, or that runs again.
var streaming = []string{
	"AClientThatIsKilledLeavesBothOrNeither", "AGRPCStatusDecides", "FlushCommitsAndStreams", "HijackCommits",
	"AWebsocketCommitsWhenItIsAccepted", "AStreamEndsWhenItsCommitFails", "TheBufferHoldsWhatMaxBufferSays",
	"InformationalResponsesAreNotHeldBack", "DeadlinesReachTheConnection", "AWriterThatCannotFlushOrHijack",
	"AWriteAfterTheResponseHasGone", "AKeyAndMiddlewaresOutside",
	"AConflictRunsTheRequestAgain", "WhatEndsTheAttempts", "AConflictAtCommit", "AConflictOfNestedMiddlewares",
	"AnInnerCommitIsNotRepeated", "RequestsThatContend",
}

// Run runs the whole suite on a framework's middleware.
func Run(t *testing.T, fw Framework) {
	t.Helper()
	for name, test := range map[string]func(t *testing.T, fw Framework){
		"ASuccessLeavesAfterTheCommit":               successAfterCommit,
		"AFailedCommitLeavesNoSuccess":               failedCommit,
		"ALostAnswerToCommitIsUnknown":               lostAnswer,
		"ResponsesArriveAsWithoutTheMiddleware":      sameResponses,
		"AClientThatIsKilledLeavesBothOrNeither":     killedClient,
		"ASlowClientHoldsNoTransaction":              slowClient,
		"ASlowSenderHoldsNoTransaction":              slowSender,
		"TheStatusAndTheErrorDecide":                 statusDecides,
		"RollbackOnDecides":                          rollbackOn,
		"TheRequestDecides":                          requestDecides,
		"AGRPCStatusDecides":                         grpcStatus,
		"AFailureReplacesASuccess":                   failureReplaces,
		"ConcurrentRequestsHaveTheirOwnTransactions": concurrent,
		"FlushCommitsAndStreams":                     flushCommits,
		"HijackCommits":                              hijackCommits,
		"AWebsocketCommitsWhenItIsAccepted":          websocketCommits,
		"AStreamEndsWhenItsCommitFails":              failedStream,
		"TheBufferHoldsWhatMaxBufferSays":            maxBuffer,
		"InformationalResponsesAreNotHeldBack":       informational,
		"DeadlinesReachTheConnection":                deadlines,
		"MethodsAndSkipper":                          methodsAndSkipper,
		"MountedTwiceItActsOnce":                     mountedTwice,
		"TwoAdaptersOfOnePool":                       twoAdapters,
		"TwoPools":                                   twoPools,
		"OnCommitRunsAfterTheCommitAlone":            onCommit,
		"ASavepointWithinTheRequest":                 savepoint,
		"AWriterThatCannotFlushOrHijack":             bareWriter,
		"AWriteAfterTheResponseHasGone":              lateWrite,
		"ATransactionThatCannotBegin":                cannotBegin,
		"ATransactionOfAnotherPool":                  foreignTransaction,
		"ATransactionThatTheHandlerEnded":            endedByHandler,
		"HealthAndAdminEndTheRequestsTransaction":    operators,
		"RolesDecideWhatOperatorsMay":                roles,
		"EventIDsOfEveryForm":                        eventIDs,
		"DeadLetterOfOneOfSeveralListeners":          deadListener,
		"AKeyReplaysItsAnswer":                       keyReplays,
		"AKeyIsRefused":                              keyRefused,
		"AKeyOfARequestThatCameToNothing":            keyRollback,
		"AKeyOfAResponseThatStreamed":                keyStream,
		"AKeyOfARequestThatIsRunning":                keyRunning,
		"AKeySettlesALostAnswerToCommit":             keyLostAnswer,
		"AKeyOfAClientThatIsKilled":                  keyKilledClient,
		"AKeyOfAnotherPool":                          keyMistakes,
		"AKeyAndMiddlewaresOutside":                  keyEdges,
		"AKeyWhoseFailureIsOvertaken":                keyOvertaken,
		"AConflictRunsTheRequestAgain":               retries,
		"WhatEndsTheAttempts":                        retriesEnd,
		"AConflictAtCommit":                          retriesAtCommit,
		"AConflictOfNestedMiddlewares":               retriesNested,
		"AnInnerCommitIsNotRepeated":                 retriesInnerCommit,
		"RequestsThatContend":                        retriesContention,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if fw.Buffered && slices.Contains(streaming, name) {
				t.Skip("the framework sends the response after the handler has returned, and does not run handlers again")
			}
			test(t, fw)
		})
	}
}
