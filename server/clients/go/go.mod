module github.com/x-uid/xuid-go

go 1.19
