bothy up
