mod flagger;
